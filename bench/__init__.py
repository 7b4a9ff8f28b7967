"""How kernelmark measures: plan, measure, record, report. Users import `kernelmark`."""

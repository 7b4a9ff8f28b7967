"""Write results from the store: tables, exports, figures and pages."""

"""Transfer: B = A over a link, between memories of host and device, or within the host's."""

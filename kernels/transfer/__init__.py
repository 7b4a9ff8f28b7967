"""Transfer: B = A over a link, between the memories of host and device or within the host's memory."""

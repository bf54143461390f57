"""The HTTP server and the process around it: heads and bodies have deadlines, and no address holds every thread."""

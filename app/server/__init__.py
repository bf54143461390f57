"""The HTTP server and the process around it: heads and bodies have deadlines, and addresses take turns."""

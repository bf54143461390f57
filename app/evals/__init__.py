"""Pure: what a session changed, how two sessions differ, and what a recording answers. No Flask, database or clock."""

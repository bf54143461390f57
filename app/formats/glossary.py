"""The terms of the product, the same on pages, in docs and in the API. `docs/glossary.md` has the same lines."""

GLOSSARY = {
    "feedback": "One signal about an agent’s output: a thumb, an edit, a rejection, a failure, a flag.",
    "pending": "Not looked at.",
    "reviewed": "Seen, decision open.",
    "applied": "Led to a change.",
    "dismissed": "Needs no change.",
    "knowledge": "One rule or fact that goes into agent prompts.",
    "proposed": "Waiting for approval.",
    "active": "In prompts.",
    "inactive": "Kept, not in prompts.",
    "session": "One agent run, with its messages, tool calls and changes.",
    "golden": "A session that shows the right behaviour, kept as a test.",
    "replay": "A golden’s inputs run again on some agent version.",
    "run": "One replay of a set of goldens.",
    "trial run": "A run that does not change the set’s score.",
    "candidate": "A prompt that got negative feedback and is not a golden yet.",
    "frozen knowledge": "What the golden had in its prompt.",
    "live knowledge": "What agents get today.",
}

"""The `offline` model: it follows rules, it is no language model, and it says so wherever its output shows.

It is a pure function of messages and tool definitions: no clock, no randomness, no database. Every request plays the
turn from its beginning over the results in the messages, so the same messages give the same bytes. In reading order:

1. `conversation`: what it is given, namely the prompt, the turns so far and the tools.
2. `rules`: what it follows, six forms found in knowledge rows and in instructions.
3. `turn`: cuts the user message into steps, chooses a tool for each, and does them in order, with at most six calls.
4. `arguments`: the arguments of the call, each by the first rule that yields a valid value.
5. `answers`: one line of the answer for each step.

`model` is the adapter to pydantic-ai.
"""

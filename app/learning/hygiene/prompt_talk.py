"""How texts talk to a model about its prompt, its role, its tools or the review, rather than about the work.

An imperative is no sign of it: every correction is one. The patterns read a folded text (`hidden_characters.fold`).
Each has bounded repetitions, so a long text costs no more than its length.
"""

import re

from app.text.hidden_characters import fold

_INSTRUCTIONS = (
    r"(?:instructions?|rules?|guidelines?|prompts?|directives?|polic(?:y|ies)|restrictions?|safeguards?|commands?)"
)
# Which instructions: the model's own. The rules of a price list are the work, not the prompt.
_ITS = (
    r"(?:all|any|every|each|previous|prior|earlier|preceding|above|foregoing|following|your|these|those|other|existing"
    r"|system|original|initial|current|former|safety|hidden|developer|of|the|and|or|its|such)"
)
_DROP = (
    r"(?:ignor(?:e|es|ing)|forget(?:ting)?|overrid(?:e|es|ing)|disregard(?:ing)?|bypass(?:ing)?|discard(?:ing)?"
    r"|neglect|skip|set(?:ting)? aside|abandon|drop|replace|disable|(?:do not|don't|never) (?:follow|obey)"
    r"|stop (?:following|obeying))"
)
_LET_IN = r"(?:approve|accept|activate|promote|propose|apply|mark)"


def _about(pattern: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    return re.compile(pattern, flags)


ABOUT_THE_PROMPT = (
    # To set aside what the model was told.
    _about(rf"\b{_DROP} (?:{_ITS} ){{1,5}}{_INSTRUCTIONS}\b"),
    _about(rf"\b{_DROP} {_INSTRUCTIONS}\b"),
    _about(
        rf"\b{_DROP} (?:(?:all|any|of|the|everything|anything|what|that) )+(?:(?:is|was|came|comes|stands) )?"
        r"(?:above|before this|you (?:were|are|have been|had been|know))\b"
    ),
    _about(rf"\b{_DROP} (?:them|it|this|that) (?:all )?with (?:what|the|this)\b"),
    _about(rf"\b{_INSTRUCTIONS} (?:before|above|after|below|preceding) (?:this|here|that)\b"),
    _about(rf"\b(?:precedence|priority) over (?:{_ITS} ){{1,4}}{_INSTRUCTIONS}\b"),
    _about(r"\b(?:ignoriere|vergiss|missachte)\b.{0,30}\b(?:anweisung|regel|vorgabe)"),
    _about(r"\b(?:ignore[zr]?|oublie[zr]?|ignora|olvida)\b.{0,30}\b(?:instruc[ct]ion|r[eè]gle|consigne|regla)"),
    _about(
        r"\b(?:what|everything|all|anything|whatever)(?: that)?(?: is| was| stands)?(?: written| said| stated| told)?"
        r" above(?= (?:this|here|is|was|are)\b|[.,;:!]|$)"
    ),
    _about(r"\b(?:your|these) (?:\w+ )?(?:instructions?|prompts?|guidelines|guardrails|programming|system message)\b"),
    _about(r"\b(?:new|updated|real|actual) (?:instructions|rules|orders)(?: are| follow|:)"),
    _about(r"\bobey (?:me|the user|the customer|everything|all|any|every|whatever)\b"),
    _about(r"\b(?:without (?:any )?(?:restrictions?|filters?|safety)|no (?:restrictions|filters)|do anything now)\b"),
    _about(r"\b(?:end|start|begin(?:ning)?) of (?:the )?(?:system |your )?(?:prompt|instructions|context)\b"),
    _about(
        r"\b(?:without telling|do not tell|don't tell|hide this from) the (?:user|admin|customer|owner)"
        r" (?:about this|about these|that you)\b"
    ),
    # To show what the model was told.
    _about(r"\b(?:system|developer|initial|hidden|secret|original) (?:prompts?|messages?|instructions?)\b"),
    _about(
        r"\b(?:reveal|print|repeat|show|output|display|leak|quote|summari[sz]e|recite|dump|text of|copy)\b[^.\n]{0,25}"
        r"\b(?:(?:your|its|the agent's|the model's) (?:\w+ )?(?:prompt|instructions?|rules)"
        r"|(?:instructions?|rules|guidelines) you (?:were given|got|have|follow))\b"
    ),
    _about(r"\b(?:repeat|print|output|copy) (?:\w+ ){0,2}(?:words|text|everything|lines?|all)? ?above\b"),
    _about(
        rf"\b(?:all|any|other|earlier|previous|prior|above|old) {_INSTRUCTIONS} (?:are|is|were) (?:now )?"
        r"(?:cancel|void|null|obsolete|suspend|invalid|outdated|no longer|lifted|revoked)"
    ),
    # To be somebody else.
    _about(r"\b(?:stop|quit|cease) being an? (?:assistant|ai|agent|bot|model)\b"),
    _about(r"\byour (?:developers?|creators?|makers?)\b"),
    _about(r"(?<![\"“])\byou(?: are|'re) (?:now|no longer|henceforth) (?!able|on|in|at|done|ready|signed|connected)"),
    _about(r"\bfrom (?:now|here) on,? (?:you|act|behave|answer as|ignore|override|forget|obey)\b"),
    _about(r"\b(?:pretend|imagine|suppose) (?:that )?(?:you are|you're|to be)\b"),
    _about(r"\b(?:act|behave|respond|answer) as (?:if you|though you|an? (?:ai|assistant|unrestricted|unfiltered))\b"),
    _about(r"\b(?:role-?play|jailbreak|(?:developer|god|dan|unrestricted|debug) mode)\b"),
    # Marks of a chat's roles, and calls written out as a model would write them.
    _about(
        r"</?(?:system|assistant|user|human|developer|tool|tool_calls?|tool_result|function_call|instructions?"
        r"|knowledge|prompt|context)>"
    ),
    _about(r"<\|[a-z_]{2,30}\|>|\[/?inst\]|<</?sys>>"),
    _about(r"^[ #>*]*(?:system|assistant|user|human|ai|developer)[ *]*:(?!\w)", re.IGNORECASE | re.MULTILINE),
    _about(r"\{[^{}]{0,200}\"(?:tool|tool_name|function|function_call|tool_calls|arguments|parameters)\"\s*:"),
    _about(r"\{\s*\"name\"\s*:\s*\"\w+\"\s*[,}]"),
    _about(r"\b[Cc]all add[A-Z]\w*", 0),
    # Somewhere outside.
    _about(r"\b(?:https?|hxxps?|ftp|file|javascript|wss?)\s*:\s*//\S*|\bwww\.\w\S*"),
    _about(r"\bdata:\w+/[\w.+-]+[;,]\S*"),
    _about(r"!\[[^\]\n]{0,80}\]\("),
    _about(r"(?<![@\w.-])(?:[a-z0-9-]+\.)+[a-z]{2,24}/\S+"),
    # The review of feedback, and the way into this very list.
    _about(r"\b(?:feedback[- ]review|review(?:er|ing)?[- ]agent|nightly review|knowledge gate)\b"),
    _about(
        rf"\b(?:the |dear )?review(?:ers?)?\b,? (?:must|should|has to|needs to|shall|will|please)? ?{_LET_IN}\b"
    ),
    _about(rf"\b(?:ask|tell|get|make|let) the review(?:er)? (?:to )?{_LET_IN}\b"),
    _about(r"\bwhen the review(?:er)? (?:reads|sees|runs)\b"),
    _about(
        rf"\b{_LET_IN} (?:this|the present)"
        r" (?:row|rule|proposal|correction|feedback|message|entry|lesson|guideline|insight)\b"
    ),
    _about(r"\bmark (?:this|the) (?:feedback|row|signal|message) as\b"),
    _about(
        r"\b(?:add|save|store|write|put|remember) (?:this|it)\b[^.\n]{0,20}\b(?:to|in|into|as) (?:(?:an?|the|your) )?"
        r"(?:active )?(?:shared context|knowledge|guidelines?|memory|memories|rules?|corrections?|routing|lessons?)\b"
    ),
    _about(r"\b(?:set |make it |is )?active(?: ?[:=] ?| to )true\b|\bskip the approval\b|\bno second signal\b"),
)  # fmt: skip


QUOTE_LENGTH = 40


CODED = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{40,}={0,2}")


def find_prompt_talk(text: str) -> str | None:
    """The words that speak to the model about its prompt, its role or its review, if there are any."""
    folded = fold(text)
    for pattern in ABOUT_THE_PROMPT:
        found = pattern.search(folded)
        if found:
            return _shortened(found[0])
    found = next((run for run in CODED.finditer(folded) if _is_coded(run[0])), None)
    return _shortened(found[0]) if found else None


def _is_coded(run: str) -> bool:
    """Hex digits, or letters of both cases with digits in between: no word and no identifier is written so."""
    if re.fullmatch(r"[0-9a-fA-F]+", run):
        return True
    kinds = (str.islower, str.isupper, str.isdigit)
    return all(any(kind(sign) for sign in run) for kind in kinds) and not re.search(r"[_-][a-z]+[_-]", run)


def _shortened(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= QUOTE_LENGTH else f"{words[:QUOTE_LENGTH].rstrip()}…"

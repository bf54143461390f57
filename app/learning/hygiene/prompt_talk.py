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
# Set aside what the model was told; show what it was told; take another role; role tags and calls as a model would
# write them; places outside; the review of feedback, and the way into this very list.
_PATTERNS = (
    rf"\b{_DROP} (?:{_ITS} ){{0,5}}{_INSTRUCTIONS}\b",
    rf"\b{_DROP} (?:(?:all|any|of|the|everything|anything|what|that) )+(?:(?:is|was|came|comes|stands) )?"
    r"(?:above|before this|you (?:were|are|have been|had been|know))\b",
    rf"\b{_DROP} (?:them|it|this|that) (?:all )?with (?:what|the|this)\b",
    rf"\b{_INSTRUCTIONS} (?:before|above|after|below|preceding) (?:this|here|that)\b",
    rf"\b(?:precedence|priority) over (?:{_ITS} ){{1,4}}{_INSTRUCTIONS}\b",
    r"\b(?:ignoriere|vergiss|missachte)\b.{0,30}\b(?:anweisung|regel|vorgabe)",
    r"\b(?:ignore[zr]?|oublie[zr]?|ignora|olvida)\b.{0,30}\b(?:instruc[ct]ion|r[eè]gle|consigne|regla)",
    r"\b(?:what|everything|all|anything|whatever)(?: that)?(?: is| was| stands)?(?: written| said| stated| told)?"
    r" above(?= (?:this|here|is|was|are)\b|[.,;:!]|$)",
    r"\b(?:your|these) (?:\w+ )?(?:instructions?|prompts?|guidelines|guardrails|programming|system message)\b",
    r"\b(?:new|updated|real|actual) (?:instructions|rules|orders)(?: are| follow|:)",
    r"\bobey (?:me|the user|the customer|everything|all|any|every|whatever)\b",
    r"\b(?:without (?:any )?(?:restrictions?|filters?|safety)|no (?:restrictions|filters)|do anything now)\b",
    r"\b(?:end|start|begin(?:ning)?) of (?:the )?(?:system |your )?(?:prompt|instructions|context)\b",
    r"\b(?:without telling|(?:do not|don't) tell|hide this from) the (?:user|admin|customer|owner)"
    r" (?:about this|about these|that you)\b",
    rf"\b(?:all|any|other|earlier|previous|prior|above|old) {_INSTRUCTIONS} (?:are|is|were) (?:now )?"
    r"(?:cancel|void|null|obsolete|suspend|invalid|outdated|no longer|lifted|revoked)",
    r"\b(?:system|developer|initial|hidden|secret|original) (?:prompts?|messages?|instructions?)\b",
    r"\b(?:reveal|print|repeat|show|output|display|leak|quote|summari[sz]e|recite|dump|text of|copy)\b[^.\n]{0,25}"
    r"\b(?:(?:your|its|the agent's|the model's) (?:\w+ )?(?:prompt|instructions?|rules)"
    r"|(?:instructions?|rules|guidelines) you (?:were given|got|have|follow))\b",
    r"\b(?:repeat|print|output|copy) (?:\w+ ){0,2}(?:words|text|everything|lines?|all)? ?above\b",
    r"\b(?:stop|quit|cease) being an? (?:assistant|ai|agent|bot|model)\b",
    r"\byour (?:developers?|creators?|makers?)\b",
    r"(?<![\"“])\byou(?: are|'re) (?:now|no longer|henceforth) (?!able|on|in|at|done|ready|signed|connected)",
    r"\bfrom (?:now|here) on,? (?:you|act|behave|answer as|ignore|override|forget|obey)\b",
    r"\b(?:pretend|imagine|suppose) (?:that )?(?:you are|you're|to be)\b",
    r"\b(?:act|behave|respond|answer) as (?:if you|though you|an? (?:ai|assistant|unrestricted|unfiltered))\b",
    r"\b(?:role-?play|jailbreak|(?:developer|god|dan|unrestricted|debug) mode)\b",
    r"</?(?:system|assistant|user|human|developer|tool(?:_calls?|_result)?|function_call|instructions?|knowledge|prompt"
    r"|context)>",
    r"<\|[a-z_]{2,30}\|>|\[/?inst\]|<</?sys>>",
    r"^[ #>*]*(?:system|assistant|user|human|ai|developer)[ *]*:(?!\w)",
    r"\{[^{}]{0,200}\"(?:tool|tool_name|function|function_call|tool_calls|arguments|parameters)\"\s*:",
    r"\{\s*\"name\"\s*:\s*\"\w+\"\s*[,}]",
    r"\bcall (?-i:add[A-Z])\w*",
    r"\b(?:https?|hxxps?|ftp|file|javascript|wss?)\s*:\s*//\S*|\bwww\.\w\S*",
    r"\bdata:\w+/[\w.+-]+[;,]\S*|!\[[^\]\n]{0,80}\]\(",
    r"(?<![@\w.-])(?:[a-z0-9-]+\.)+[a-z]{2,24}/\S+",
    r"\b(?:feedback[- ]review|review(?:er|ing)?[- ]agent|nightly review|knowledge gate)\b",
    rf"\b(?:the |dear )?review(?:ers?)?\b,? (?:must|should|has to|needs to|shall|will|please)? ?{_LET_IN}\b",
    rf"\b(?:ask|tell|get|make|let) the review(?:er)? (?:to )?{_LET_IN}\b",
    r"\bwhen the review(?:er)? (?:reads|sees|runs)\b",
    rf"\b{_LET_IN} (?:this|the present)"
    r" (?:row|rule|proposal|correction|feedback|message|entry|lesson|guideline|insight)\b",
    r"\bmark (?:this|the) (?:feedback|row|signal|message) as\b",
    r"\b(?:add|save|store|write|put|remember) (?:this|it)\b[^.\n]{0,20}\b(?:to|in|into|as) (?:(?:an?|the|your) )?"
    r"(?:active )?(?:shared context|knowledge|guidelines?|memory|memories|rules?|corrections?|routing|lessons?)\b",
    r"\bactive(?: ?[:=] ?| to )true\b|\bskip the approval\b|\bno second signal\b",
)
ABOUT_THE_PROMPT = [re.compile(pattern, re.IGNORECASE | re.MULTILINE) for pattern in _PATTERNS]
CODED = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{40,}={0,2}")
QUOTE_LENGTH = 40


def find_prompt_talk(text: str) -> str | None:
    """The words that speak to the model about its prompt, its role or its review, if there are any."""
    folded = fold(text)
    patterns = (pattern.search(folded) for pattern in ABOUT_THE_PROMPT)
    found = next(filter(None, patterns), None) or next(filter(_is_coded, CODED.finditer(folded)), None)
    return shorten(found[0], QUOTE_LENGTH) if found else None


def _is_coded(run: re.Match[str]) -> bool:
    """Hex digits, or letters of both cases with digits in between: no word and no identifier is written so."""
    if re.fullmatch(r"[0-9a-fA-F]+", run[0]):
        return True
    kinds = (str.islower, str.isupper, str.isdigit)
    return all(any(kind(sign) for sign in run[0]) for kind in kinds) and not re.search(r"[_-][a-z]+[_-]", run[0])


def shorten(text: str, length: int) -> str:
    """A quotation of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[:length].rstrip()}…"

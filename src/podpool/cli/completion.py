"""Shell completion. Scripts ask the hidden command `podpool __complete WORDS...`, with cobra's protocol.

It prints one candidate per line, with a tab and a description, and as the last line a directive. kubectl asks
`kubectl_complete-podpool` in the same way.
"""

from collections.abc import Mapping, Sequence

from podpool.cli.errors import UsageError
from podpool.cli.parser import find_command
from podpool.cli.spec import children, options_of
from podpool.cli.spec.model import Command, Option, Type

NO_FILES, FILES = ":4", ":0"
"""cobra's ShellCompDirectiveNoFileComp and ShellCompDirectiveDefault."""
_BASH = """\
# bash completion for podpool
_podpool_complete() {
    local current="${COMP_WORDS[COMP_CWORD]}" answer directive
    answer=$(podpool __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
    directive=${answer##*$'\\n'}
    COMPREPLY=()
    while IFS=$'\\t' read -r candidate _; do
        [[ $candidate == :* ]] || COMPREPLY+=("$candidate")
    done <<< "$answer"
    if [[ $directive == :0 ]]; then
        compopt -o default 2>/dev/null || COMPREPLY=($(compgen -f -- "$current"))
    fi
}
complete -F _podpool_complete podpool
"""
_ZSH = """\
#compdef podpool
_podpool() {
    local -a candidates
    local line directive
    while IFS= read -r line; do
        case $line in
            :[0-9]*) directive=$line ;;
            *) candidates+=("${${line//:/\\\\:}/$'\\t'/:}") ;;
        esac
    done < <(podpool __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    _describe podpool candidates
    [[ $directive == :0 ]] && _files
}
compdef _podpool podpool
"""
_FISH = """\
# fish completion for podpool
function __podpool_complete
    set -l words (commandline -opc) (commandline -ct)
    podpool __complete $words[2..] 2>/dev/null | string match -v -r '^:[0-9]+$'
end
complete -c podpool -f -a '(__podpool_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def print_script(*, shell: str) -> None:
    """Print the script for a shell."""
    print(_SCRIPTS[shell], end="")  # noqa: T201  the command's output


def complete(words: Sequence[str]) -> list[str]:
    """Return the lines that answer what may take the place of the last word."""
    *before, last = words or [""]
    candidates, directive = _candidates(before, last)
    return [*(f"{word}\t{about}" if about else word for word, about in candidates.items()), directive]


def _candidates(before: Sequence[str], last: str) -> tuple[Mapping[str, str], str]:
    try:
        found, rest = find_command(before)
    except UsageError:
        return {}, NO_FILES
    if not isinstance(found, Command):
        below = {word: each.summary for word, each in children(found.name if found else "").items()}
        return _starting(below, last), NO_FILES
    options = options_of(found)
    if rest and (option := _awaits_value(options, rest[-1])):
        return _starting(dict.fromkeys(option.choices, ""), last), NO_FILES if option.choices else FILES
    if last.startswith("-"):
        return _starting({option.flag: option.help for option in options}, last), NO_FILES
    place = sum(not word.startswith("-") for word in rest)
    choices = found.arguments[place].choices if place < len(found.arguments) else ()
    below = {} if rest else {word: each.summary for word, each in children(found.name).items()}
    return _starting(dict.fromkeys(choices, "") | below, last), NO_FILES


def _awaits_value(options: Sequence[Option], word: str) -> Option | None:
    awaiting = (each for each in options if each.type is not Type.BOOLEAN and not each.implied)
    return next((each for each in awaiting if word in {each.flag, each.short}), None)


def _starting(candidates: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {word: about for word, about in candidates.items() if word.startswith(prefix)}

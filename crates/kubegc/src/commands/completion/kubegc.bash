# kubegc completes itself: it is given the words of the line, the last of which is to be completed. It answers one
# completion per line, and then a directive: `:0` stands for names of files.
_kubegc() {
    local line=${COMP_LINE:0:COMP_POINT} prefix answers
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    mapfile -t answers < <("${words[0]}" complete -- "${words[@]:1}" 2> /dev/null)
    COMPREPLY=()
    if [[ ${answers[-1]} == :0 ]]; then
        compopt -o default
        return
    fi
    unset 'answers[-1]'
    # Bash replaces only what follows the last of these characters.
    local last=${words[-1]}
    prefix=${last%"${last##*[=:]}"}
    COMPREPLY=("${answers[@]#"$prefix"}")
}
complete -F _kubegc kubegc

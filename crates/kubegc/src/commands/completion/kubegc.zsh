#compdef kubegc
# kubegc completes itself: it is given the words of the line, the last of which is to be completed. It answers one
# completion per line, and then a directive: `:0` stands for names of files.
_kubegc() {
    local -a answers
    answers=("${(@f)$(${words[1]} complete -- "${(@)words[2,CURRENT]}" 2> /dev/null)}")
    if [[ ${answers[-1]} == :0 ]]; then
        _files
        return
    fi
    answers[-1]=()
    compadd -- "${answers[@]}"
}
if [ "$funcstack[1]" = "_kubegc" ]; then
    _kubegc "$@"
else
    compdef _kubegc kubegc
fi

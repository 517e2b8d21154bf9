# kubegc completes itself: it is given the words of the line, the last of which is to be completed. It answers one
# completion per line, and then a directive: `:0` stands for names of files.
function __kubegc_complete
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    set -l answers ($words[1] complete -- $words[2..-1] "$last" 2>/dev/null)
    if test "$answers[-1]" = ":0"
        __fish_complete_path "$last"
    else
        printf '%s\n' $answers[1..-2]
    end
end
complete -c kubegc -f -a '(__kubegc_complete)'

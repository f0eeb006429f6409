# Reads what go test -v prints, and prints what go test does: failures, and a line for each package.
# At the end it lists the tests that were skipped, with the reasons.
/^=== / { # the lines that follow are those of this test
	test = $3
	next
}
/^ *--- (PASS|SKIP|FAIL): / {
	if ($2 == "FAIL:") printf "%s%s\n", said[$3], $0
	if (/^--- SKIP/) reasons[$3] = said[$3]
	delete said[$3]
	next
}
/^(ok  |FAIL|\?   )\t/ { # the end of a package
	for (name in said) { # tests that did not end, and what follows the last one
		if ($1 == "FAIL") printf "%s", said[name]
		delete said[name]
	}
	for (name in reasons) {
		gsub(/[ \n]+/, " ", reasons[name])
		sub(/ $/, "", reasons[name])
		skipped[++n] = $2 " " name ":" reasons[name]
		delete reasons[name]
	}
	test = ""
	print
	next
}
test == "" { # before the first test of a package
	print
	next
}
{ said[test] = said[test] $0 "\n" }
END {
	for (name in said) printf "%s", said[name] # the package did not end
	if (n) print n " tests were skipped:"
	for (i = 1; i <= n; i++) print "  " skipped[i]
}

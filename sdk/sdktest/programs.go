package sdktest

import (
	"iter"

	"github.com/cage-qat/cage/sdk/program"
)

// equalPrograms reports whether two answers hold the same programs.
func equalPrograms(first, second iter.Seq2[string, *program.Program]) bool {
	t := &trial{}
	samePrograms(t, place{}, first, second)
	return !t.failed()
}

// samePrograms fails unless two answers to one request are the same.
func samePrograms(t *trial, p place, first, second iter.Seq2[string, *program.Program]) {
	hashes := map[string]string{}
	for name, prog := range first {
		hashes[name] = prog.Hash()
	}
	for name, prog := range second {
		if hashes[name] != prog.Hash() {
			t.failf(p, "a second request gives another %s program", name)
		}
		delete(hashes, name)
	}
	for name := range hashes {
		t.failf(p, "a second request gives no %s program", name)
	}
}

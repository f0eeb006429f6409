package sdktest

import (
	"iter"

	"github.com/cage-qat/cage/sdk/program"
)

// hashes returns the hashes of the programs of an answer, by their names.
func hashes(programs iter.Seq2[string, *program.Program]) map[string]string {
	out := map[string]string{}
	for name, p := range programs {
		out[name] = p.Hash()
	}
	return out
}

// samePrograms fails unless two answers to one request are the same.
func samePrograms(t *trial, e example, first, second iter.Seq2[string, *program.Program]) {
	a, b := hashes(first), hashes(second)
	for name := range b {
		if a[name] != b[name] {
			t.failf(e, "a second request gives another %s program", name)
		}
	}
	for name := range a {
		if b[name] == "" {
			t.failf(e, "a second request gives no %s program", name)
		}
	}
}

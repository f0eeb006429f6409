package provenance

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/rundir"
)

// FuzzProvenance checks that a provenance.json is either refused with an error that names it, or
// stays the same when it is written again.
func FuzzProvenance(f *testing.F) {
	f.Add([]byte(`{"build":{"go":"go1.27","simd":true},"directory":"/a","tokenizer":{"name":"bytes","vocab_size":256},"plugins":[{"table":"optimizer","name":"adamw","parameters":{"beta1":0.9}}],"programs":{"weight a: quantize":"ff"}}`))
	f.Add([]byte(`{"plugins":null,"programs":{"a":"b","c":""}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(``))
	dir := rundir.At(f.TempDir())
	f.Fuzz(func(t *testing.T, text []byte) {
		put := func(text []byte) {
			if err := os.WriteFile(dir.Provenance().Name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put(text)
		p, err := Read(dir)
		if err != nil {
			if !strings.Contains(err.Error(), rundir.ProvenanceFile) {
				t.Fatalf("no file in %v", err)
			}
			return
		}
		if changed := build.Changed(p.Programs, p.Programs); len(changed) > 0 {
			t.Fatalf("%q have changed against themselves", changed)
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		put(again)
		back, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, back, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("the account changed:\n%s", diff)
		}
	})
}

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

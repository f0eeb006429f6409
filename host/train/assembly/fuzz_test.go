package assembly

import (
	"os"
	"testing"

	"github.com/cage-qat/cage/host/train/rundir"
)

// FuzzRecorded: any account of a run records programs, or none.
func FuzzRecorded(f *testing.F) {
	f.Add([]byte(`{"programs":{"weight a: quantize":"ff"}}`))
	f.Add([]byte(`{"programs":[]}`))
	f.Add([]byte(`{"programs":{"a":"b","a":"c"},"programs":null`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(rundir.At(dir).Provenance().Name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if programs := recordedPrograms(dir); len(programs) > len(text) {
			t.Fatalf("%d programs in %d bytes", len(programs), len(text))
		}
	})
}

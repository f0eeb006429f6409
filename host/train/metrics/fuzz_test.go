package metrics_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

// put writes a file and returns its path.
func put(t testing.TB, path string, data []byte) vfs.Path {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return vfs.At(path)
}

func get(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzTrajectory checks that the points of a file keep their bits when they are written again.
func FuzzTrajectory(f *testing.F) {
	f.Add([]byte(`{"step":0,"x":[1,-0.5,"NaN"]}` + "\n" +
		`{"step":3,"x":[1e-45,3.4028235e38,"-Inf"]}` + "\n"))
	f.Add([]byte(`{"step":1,"x":[]}` + "\n" + `{"step":2}` + "\n{"))
	path := filepath.Join(f.TempDir(), "trajectory.jsonl")
	f.Fuzz(func(t *testing.T, data []byte) {
		points, err := metrics.Read[metrics.Point](put(t, path, data))
		if err != nil {
			if !strings.Contains(err.Error(), path+": line ") {
				t.Fatalf("no file and line in %v", err)
			}
			return
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		w := resume[metrics.Point](t, path, 0)
		writeAll(t, w, points...)
		closeWriter(t, w)
		again, err := metrics.Read[metrics.Point](vfs.At(path))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(points, again, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("points changed:\n%s", diff)
		}
	})
}

// FuzzSummary checks that a summary that can be read stays the same when it is written again, and
// that both readers agree on its numbers.
func FuzzSummary(f *testing.F) {
	text, err := json.Marshal(metrics.Summary{Name: "a", Completed: true, Steps: 3,
		ValLoss: metrics.Some(2.5), ErrorRel: metrics.Some(0)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"val_loss":"NaN","more":[1,{}],"completed":false,"seconds":1e300}`))
	path := filepath.Join(f.TempDir(), "summary.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		file := put(t, path, data)
		numbers, completed, err := metrics.ReadNumbers(file)
		s, errOfAll := metrics.ReadSummary(file)
		for _, err := range []error{err, errOfAll} {
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Fatalf("no file in %v", err)
			}
		}
		if errOfAll != nil {
			return
		}
		if err != nil {
			t.Fatalf("a summary has no numbers: %v", err)
		}
		if err := metrics.WriteSummary(file, s); err != nil {
			t.Fatal(err)
		}
		again, err := metrics.ReadSummary(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, again, sameNumber); diff != "" {
			t.Fatalf("the summary changed:\n%s", diff)
		}
		// Keys that differ only in case are one field, but several numbers.
		exact := bytes.Count(bytes.ToLower(data), []byte("val_loss")) == 1 &&
			bytes.Contains(data, []byte(`"val_loss"`))
		if x, ok := numbers["val_loss"]; exact && ok != (s.ValLoss != nil) && completed {
			t.Fatalf("val_loss is %v, %v and %v", x, ok, s.ValLoss)
		}
	})
}

// FuzzResume checks that a resumed file is the beginning of the old one, up to the given step.
func FuzzResume(f *testing.F) {
	f.Add([]byte(`{"step":1,"loss":2}`+"\n"+`{"step":4,"loss":"NaN"}`+"\n"+`{"step":6,"lo`), 4)
	f.Add([]byte(`{"step":1}`+"\n"+`oops`+"\n"), 1)
	f.Add([]byte("\n\x00\x00"), 0)
	path := filepath.Join(f.TempDir(), "metrics.jsonl")
	f.Fuzz(func(t *testing.T, data []byte, step int) {
		file := put(t, path, data)
		last, ok, lastErr := metrics.Last(file)
		all, err := parse(t, data)
		if err == nil && (lastErr != nil || ok != (len(all) > 0) || ok &&
			last.Step != all[len(all)-1].Step) {
			t.Fatalf("the last of %d records is %+v, %v, %v", len(all), last, ok, lastErr)
		}
		w, err := metrics.Resume[metrics.Record](file, step)
		if err != nil {
			if after, readErr := os.ReadFile(path); readErr != nil || !bytes.Equal(after, data) {
				t.Fatalf("a refused file was changed: %v, %v", err, readErr)
			}
			return
		}
		closeWriter(t, w)
		after, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(data, after) {
			t.Fatalf("what is kept is not the beginning: %q of %q, %v", after, data, err)
		}
		kept, err := parse(t, after)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(kept); n > 0 && kept[n-1].Step > step {
			t.Fatalf("step %d is kept, asked for %d", kept[n-1].Step, step)
		}
	})
}

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Run is a cell as listed in the report.
type Run struct {
	ID         string
	Labels     []string // in the order of the axes
	State      study.State
	Err        string // the error of a failed cell
	Summary    map[string]float64
	Set        []study.Setting
	Config     string // resolved, in TOML; without the location of the run
	Provenance string // JSON: build, plugins, hashes of programs; empty if the cell has not begun
}

func newRun(s *study.Study, r study.Result) (*Run, error) {
	out := &Run{
		ID: r.Cell.ID, Labels: r.Cell.Of(s.AxisNames()), State: r.State, Set: r.Cell.Set,
		Err: placeless(strings.ToValidUTF8(r.Err, "\uFFFD")), Summary: map[string]float64{},
	}
	for name, v := range r.Summary {
		if !metrics.Timed(name) {
			out.Summary[name] = v
		}
	}
	text, err := r.Cell.Config.Encode()
	if err != nil {
		return nil, err
	}
	out.Config = placeless(withoutKey(string(text), "train", "out"))
	if r.Trained() {
		if out.Provenance, err = readProvenance(rundir.At(r.Cell.Run).Provenance()); err != nil {
			return nil, &damaged{r.Cell.ID, err}
		}
	}
	return out, nil
}

// withoutKey removes a key of a table from encoded TOML.
func withoutKey(text, table, key string) string {
	var b strings.Builder
	inside := false
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, "[") {
			inside = strings.TrimSpace(l) == "["+table+"]"
		}
		if !inside || !strings.HasPrefix(l, key+" = ") {
			b.WriteString(l)
		}
	}
	return b.String()
}

// readProvenance reads what a run was made of and leaves out what differs from place
// to place, and identities of runs, which are random; "" when there is nothing to read.
func readProvenance(path vfs.Path) (string, error) {
	text, err := path.ReadFile()
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var v any
	if err := plainjson.Unmarshal(text, &v); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if fields, ok := v.(map[string]any); ok {
		delete(fields, "run")
		// A checkpoint of a run, from which this one began, holds the identity of that run.
		if initial, ok := fields["initial"].(map[string]any); ok && initial["run"] != nil {
			delete(initial, "run")
			delete(initial, "files")
		}
	}
	out, err := json.MarshalIndent(withoutPlaces(v), "", "  ")
	return string(out), err
}

// withoutPlaces makes all texts of a JSON value placeless.
func withoutPlaces(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = withoutPlaces(v[key])
		}
	case []any:
		for i := range v {
			v[i] = withoutPlaces(v[i])
		}
	case string:
		return placeless(v)
	}
	return v
}

func (r *Report) failed() []Run {
	return slices.DeleteFunc(slices.Clone(r.Runs), func(run Run) bool { return run.State != study.Failed && run.State != study.Stale })
}

package rundir

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/vfs"
)

// stamp tells whether a file has changed.
type stamp struct {
	Size int64
	Time int64 // of the last change, nanoseconds since 1970, where 0 counts as 1; 0: there is no file
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return stamp{}
	}
	return stamp{info.Size(), cmp.Or(info.ModTime().UnixNano(), 1)}
}

// stamps are those of a run's files. The records of a run that is done do not count.
type stamps struct{ Config, Summary, Metrics stamp }

// modified is when the newest of the files was written.
func (s stamps) modified() time.Time {
	return time.Unix(0, max(s.Config.Time, s.Summary.Time, s.Metrics.Time))
}

// stampsOf is false for a directory that is not a run's. known is what was read of it before.
func stampsOf(dir string, known entry) (s stamps, ok bool) {
	d := At(dir)
	s.Config = stampOf(d.Config().Name)
	if s.Config.Time == 0 {
		return s, false
	}
	s.Summary = stampOf(d.Summary().Name)
	if known.run == nil || known.run.State != Done || known.stamps != s {
		s.Metrics = stampOf(d.Metrics().Name)
	}
	return s, true
}

// read reads the run directory with these stamps.
func read(dir string, s stamps) entry {
	r := &Run{Dir: dir, State: Interrupted}
	if err := r.read(); err != nil {
		r.State, r.Err = Unreadable, err.Error()
	}
	if r.State == Done {
		s.Metrics = stamp{}
	}
	r.Modified = s.modified()
	return entry{r, s}
}

// Limits of a run.toml: far more than any has, and little enough that a stranger's file is
// refused in no time, or read in a part of a second.
const (
	longestConfig = 1 << 20 // bytes
	mostKeys      = 5_000
)

func (r *Run) read() error {
	path := At(r.Dir).Config()
	text, err := path.ReadSmallFile(longestConfig)
	if err != nil {
		return err
	}
	if bytes.Count(text, []byte("=")) > mostKeys || bytes.Count(text, []byte("[")) > mostKeys {
		return fmt.Errorf("%s has more than %d keys or tables", path, mostKeys)
	}
	doc, err := plaintoml.Parse(path.Name, text)
	if err != nil {
		return err
	}
	values := doc.Values()
	splitQuantizer(values)
	r.config = flatten("", values, nil)
	slices.SortFunc(r.config, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	numbers, completed, err := metrics.ReadNumbers(At(r.Dir).Summary())
	if err != nil {
		return err
	}
	if completed {
		r.State = Done
	} else if err := r.readStop(); err != nil {
		return err
	} else {
		newest, err := lastNumbers(At(r.Dir).Metrics())
		if err != nil {
			return err
		}
		numbers = newer(numbers, newest)
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		r.results = append(r.results, Result{name, numbers[name]})
	}
	return nil
}

// readStop takes from the summary of a run that is not complete why it ended.
func (r *Run) readStop() error {
	summary, err := metrics.ReadSummary(At(r.Dir).Summary())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch summary.Stopped {
	case metrics.Diverged:
		r.State, r.Err = Diverged, summary.Error
	case metrics.Failed:
		r.State, r.Err = Failed, summary.Error
	}
	return nil
}

// newer are the numbers of a summary and of the newest records. Where both have one, that of the later step counts:
// records need not be of the last step, and a run may have gone on since its summary.
func newer(summary, records map[string]float64) map[string]float64 {
	first, second := summary, records
	if summary["steps"] >= records["steps"] {
		first, second = records, summary
	}
	out := map[string]float64{}
	maps.Copy(out, first)
	maps.Copy(out, second)
	return out
}

// sharedNumbers are the numbers that mean the same in records and in summaries.
var sharedNumbers = []string{"tokens", "seconds", "error_norm2", "error_rel", "distance", "val_loss", "val_ppl", "skipped", "uncorrected"}

// lastNumbers are the results so far, by the names of a summary: of the newest record, and of the newest evaluation.
func lastNumbers(path vfs.Path) (map[string]float64, error) {
	last, ok, err := metrics.Last(path)
	if !ok {
		return nil, err
	}
	evaluation, evaluated, err := metrics.LastEvaluation(path)
	if err != nil {
		return nil, err
	}
	if evaluated {
		last.ValLoss, last.ValPPL = evaluation.ValLoss, evaluation.ValPPL
	}
	last.Weights = nil
	numbers := map[string]float64{"steps": float64(last.Step), "train_loss": float64(last.Loss)}
	for _, v := range last.Values() {
		if slices.Contains(sharedNumbers, v.Name) {
			numbers[v.Name] = v.Number
		}
	}
	return numbers, nil
}

// splitQuantizer gives each role its own table where one stands for both.
func splitQuantizer(values map[string]any) {
	both, _ := values["quantizer"].(map[string]any)
	if _, shared := both["plugin"]; !shared {
		return
	}
	split := map[string]any{}
	role := map[string]any{}
	for key, v := range both {
		if key == "overrides" || key == "weights" || key == "activations" {
			split[key] = v
		} else {
			role[key] = v
		}
	}
	for _, name := range []string{"weights", "activations"} {
		if split[name] == nil {
			split[name] = role
		}
	}
	values["quantizer"] = split
}

// flatten appends the entries of a table.
func flatten(prefix string, values map[string]any, list []Entry) []Entry {
	for key, v := range values {
		name := plaintoml.JoinKey(prefix, key)
		switch v := v.(type) {
		case map[string]any:
			list = flatten(name, v, list)
		case []map[string]any:
			for i, element := range v {
				list = flatten(plaintoml.Indexed(name, i), element, list)
			}
		default:
			list = append(list, Entry{name, plaintoml.Setting{Value: v}.Text()})
		}
	}
	return list
}

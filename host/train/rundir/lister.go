package rundir

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/vfs"
)

// Lister lists runs repeatedly, for programs that watch them: it does not reread unchanged
// runs. The zero value is ready to use.
type Lister struct {
	mu    sync.Mutex
	known map[string]entry // by directory
}

// List returns the runs below the roots, sorted by directory. A root may be a run itself, and must
// exist. Runs that cannot be read are listed with the reason.
func (l *Lister) List(ctx context.Context, roots ...string) ([]*Run, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]entry{}
	for _, root := range roots {
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("there is no directory %s", root)
			}
			return nil, err
		}
		list, err := scan(ctx, filepath.Clean(root), l.known)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			found[e.run.Dir] = e
		}
	}
	l.known = found
	var all []*Run
	for _, e := range found {
		r := *e.run
		r.checkRunning()
		all = append(all, &r)
	}
	slices.SortFunc(all, func(a, b *Run) int { return strings.Compare(a.Dir, b.Dir) })
	return all, nil
}

type entry struct {
	run    *Run
	stamps stamps
}

// scan finds the runs below a root and reads those that are new or have changed.
func scan(ctx context.Context, root string, known map[string]entry) (list []entry, err error) {
	var fresh []int
	var walk func(dir string) error
	walk = func(dir string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, isKnown := known[dir]
		if s, ok := stampsOf(dir, e); ok {
			// An unreadable run may become readable without any change of its files.
			if !isKnown || e.stamps != s || e.run.State == Unreadable {
				e = entry{run: &Run{Dir: dir}, stamps: s}
				fresh = append(fresh, len(list))
			}
			list = append(list, e)
			return nil // runs are not nested
		}
		children, err := vfs.At(dir).ReadDir()
		if err != nil {
			if dir != root && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)) {
				return nil
			}
			return err
		}
		for _, child := range children {
			path := filepath.Join(dir, child.Name())
			isRun := false
			if child.Type()&fs.ModeSymlink != 0 { // followed to runs only, so that there are no cycles
				_, isRun = stampsOf(path, known[path])
			}
			if child.IsDir() || isRun {
				if err := walk(path); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(root); err != nil {
		return nil, err
	}
	var readers errgroup.Group
	readers.SetLimit(2 * runtime.GOMAXPROCS(0))
	for _, i := range fresh {
		readers.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			list[i] = read(list[i].run.Dir, list[i].stamps)
			return nil
		})
	}
	return list, readers.Wait()
}

type stamp struct {
	Size int64
	Time int64 // of the last change, in nanoseconds since 1970, at least 1; 0: there is no file
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return stamp{}
	}
	return stamp{info.Size(), cmp.Or(info.ModTime().UnixNano(), 1)}
}

// stamps holds the stamps of a run's files. Metrics is zero if the run is completed.
type stamps struct{ Config, Summary, Metrics stamp }

// stampsOf returns false if dir is not a run directory. known is its entry from an earlier scan.
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

func read(dir string, s stamps) entry {
	r := &Run{Dir: dir, State: Interrupted}
	if err := r.read(); err != nil {
		r.State, r.Err = Unreadable, err.Error()
	}
	if r.State == Done {
		s.Metrics = stamp{}
	}
	r.Modified = time.Unix(0, max(s.Config.Time, s.Summary.Time, s.Metrics.Time))
	return entry{r, s}
}

// Limits of a run.toml: far above any real one, and low enough that a malicious file is refused
// at once, or read within a fraction of a second.
const (
	maxConfig = 1 << 20 // bytes
	maxKeys   = 5_000
)

func (r *Run) read() error {
	path := At(r.Dir).Config()
	text, err := path.ReadSmallFile(maxConfig)
	if err != nil {
		return err
	}
	if bytes.Count(text, []byte("=")) > maxKeys || bytes.Count(text, []byte("[")) > maxKeys {
		return fmt.Errorf("%s has more than %d keys or tables", path, maxKeys)
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
	} else {
		summary, err := metrics.ReadSummary(At(r.Dir).Summary())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		switch summary.Stopped {
		case metrics.Diverged:
			r.State, r.Err = Diverged, summary.Error
		case metrics.Failed:
			r.State, r.Err = Failed, summary.Error
		}
		newest, err := lastNumbers(At(r.Dir).Metrics())
		if err != nil {
			return err
		}
		// If both have a number, the one from the later step wins: the records may lack the last step,
		// and the run may have been resumed after its summary was written.
		first, second := numbers, newest
		if numbers["steps"] >= newest["steps"] {
			first, second = newest, numbers
		}
		numbers = map[string]float64{}
		maps.Copy(numbers, first)
		maps.Copy(numbers, second)
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		r.results = append(r.results, Result{name, numbers[name]})
	}
	return nil
}

// sharedNumbers are the numbers that have the same meaning in records and in summaries.
var sharedNumbers = []string{"tokens", "seconds", "error_norm2", "error_rel", "distance",
	"val_loss", "val_ppl", "skipped", "uncorrected"}

// lastNumbers returns the newest numbers of the records at path, by their names in a summary.
func lastNumbers(path vfs.Path) (map[string]float64, error) {
	last, ok, err := metrics.Last(path)
	if !ok {
		return nil, err
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

// splitQuantizer replaces a quantizer table that weights and activations share by one for each.
func splitQuantizer(values map[string]any) {
	both, _ := values["quantizer"].(map[string]any)
	if _, shared := both["plugin"]; !shared {
		return
	}
	split := map[string]any{}
	role := map[string]any{}
	for key, v := range both {
		switch v.(type) {
		case map[string]any, []map[string]any: // of a role, such as keys, or the overrides
			split[key] = v
		default:
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

// differing returns the configuration keys whose values differ between runs, each with one value
// per run: "" for a run without the key. train.out, which always differs, is left out.
func differing(list []*Run) map[string][]string {
	values := map[string][]string{}
	for i, r := range list {
		for _, e := range r.config {
			if values[e.Key] == nil {
				values[e.Key] = make([]string, len(list))
			}
			values[e.Key][i] = e.Value
		}
	}
	maps.DeleteFunc(values, func(key string, v []string) bool {
		return key == "train.out" || !slices.ContainsFunc(v, func(x string) bool { return x != v[0] })
	})
	return values
}

var comparedTables = []string{"quantizer", "optimizer", "method", "schedule", "model", "train"}

// rank orders keys by how likely they are what a comparison is about.
func rank(key string) int {
	table, _, _ := strings.Cut(key, ".")
	if i := slices.Index(comparedTables, table); i >= 0 {
		return i
	}
	return len(comparedTables)
}

// Varying returns at most the given number of keys that distinguish runs, those with the fewest
// values first, then those of quantizers, optimizers and the method. Hashes are left out, and so
// are keys whose values equal those of a listed key. Keys that only some runs have, with a single
// value, come last.
func Varying(list []*Run, most int) (names []string) {
	list = slices.DeleteFunc(slices.Clone(list), func(r *Run) bool { return r.State == Unreadable })
	const activations, weights = "quantizer.activations.", "quantizer.weights."
	type column struct {
		key, shown string
		distinct   int // number of values; a single value sorts last
	}
	var columns []*column
	firsts := map[string]*column{} // the first column by its values
	all := differing(list)
	keys := slices.Sorted(maps.Keys(all))
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	for _, key := range keys {
		if strings.HasSuffix(key, "sha256") {
			continue
		}
		values := strings.Join(all[key], "\n")
		if first, known := firsts[values]; known {
			name, both := strings.CutPrefix(first.key, activations)
			if both && key == weights+name {
				first.shown = "quantizer." + name
			}
			continue
		}
		distinct := slices.Compact(slices.Sorted(slices.Values(all[key])))
		c := &column{key, key, len(distinct)}
		if distinct[0] == "" {
			c.distinct--
		}
		if c.distinct == 1 {
			c.distinct = math.MaxInt
		}
		columns, firsts[values] = append(columns, c), c
	}
	slices.SortStableFunc(columns, func(a, b *column) int {
		return cmp.Compare(a.distinct, b.distinct)
	})
	for _, c := range columns[:min(len(columns), most)] {
		names = append(names, c.shown)
	}
	return names
}

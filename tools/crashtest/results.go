package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// results is the file of outcomes, one line for each experiment. A campaign that was
// stopped goes on after the last whole line.
type results struct {
	mu      sync.Mutex
	log     *jsonlines.Log[Record]
	records []Record
}

func openResults(path vfs.Path) (*results, error) {
	r := &results{}
	size := int64(0)
	for e, err := range jsonlines.Read[Record](path) {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, jsonlines.ErrTorn) {
			break
		}
		if err != nil {
			return nil, err
		}
		r.records, size = append(r.records, e.Value), e.End
	}
	var err error
	r.log, err = jsonlines.Continue[Record](path, size)
	return r, err
}

func (r *results) has(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.records, func(record Record) bool { return record.Key == k })
}

func (r *results) add(record Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record)
	return r.log.Append(record)
}

// identity names a build of cage: the hash of the executable and of the plugins beside it.
func identity(cage string) (string, error) {
	plugins, err := filepath.Glob(filepath.Join(filepath.Dir(cage), "plugins", "*"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, path := range append([]string{cage}, plugins...) {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// tally counts the outcomes of one row of a table.
type tally struct{ experiments, kills, torn, alone, failures int }

func (t *tally) add(r Record) {
	t.experiments++
	if len(r.Failures) > 0 {
		t.failures++
	}
	for _, k := range r.Kills {
		t.count(k)
	}
}

func (t *tally) count(k Killed) {
	t.kills++
	if k.Torn {
		t.torn++
	}
	if !k.All {
		t.alone++
	}
}

// summarize prints the outcomes as two Markdown tables: by scenario, and by system call.
func summarize(w io.Writer, records []Record) {
	scenarios, calls, total := map[string]*tally{}, map[string]*tally{}, &tally{}
	at := func(m map[string]*tally, name string) *tally {
		if m[name] == nil {
			m[name] = &tally{}
		}
		return m[name]
	}
	for _, r := range records {
		at(scenarios, r.Scenario).add(r)
		total.add(r)
		for _, k := range r.Kills {
			at(calls, k.Call).count(k)
		}
	}
	fmt.Fprintf(w, "\n| scenario | experiments | kills | caller alone | torn writes | failures |\n|---|---|---|---|---|---|\n")
	row := func(name string, t *tally) {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d |\n", name, t.experiments, t.kills, t.alone, t.torn, t.failures)
	}
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		row("`"+name+"`", scenarios[name])
	}
	row("all", total)
	fmt.Fprintf(w, "\n| system call | kills | caller alone | torn |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		t := calls[name]
		fmt.Fprintf(w, "| `%s` | %d | %d | %d |\n", name, t.kills, t.alone, t.torn)
	}
}

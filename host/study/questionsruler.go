package study

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/internal/vfs"
)

// rulerQuestions measures how long a text may be for a model to work with it, with the benchmark
// RULER, as `cage ruler` does.
type rulerQuestions struct {
	ruler.Settings              // with ascending lengths
	Tasks          []ruler.Task // those of the settings
	Batch          int          // number of prompts answered at once
}

var _ evaluation = (*rulerQuestions)(nil)

// ID implements [evaluation].
func (e *rulerQuestions) ID() string {
	var names []string
	for _, t := range e.Tasks {
		names = append(names, t.Name)
	}
	f := e.Files
	return identify("ruler", []any{e.Lengths, e.Samples, names, f.Words != "", f.Essay != "", f.Squad != "", f.Hotpot != "", e.Template, e.Batch})
}

// Metrics implements [evaluation]: the average, the average for each length, and the score of each
// task whose input is present, in percent: "ruler.average", "ruler.4096", "ruler.4096.vt".
func (e *rulerQuestions) Metrics() []measure {
	given := ruler.Inputs{Words: &ruler.Words{}} // stands for the inputs whose files are named
	if e.Files.Essay != "" {
		given.Essay = "."
	}
	if e.Files.Squad != "" {
		given.Squad = &ruler.Documents{}
	}
	if e.Files.Hotpot != "" {
		given.Hotpot = &ruler.Documents{}
	}
	list := []measure{{"ruler.average", true}}
	for _, length := range e.Lengths {
		list = append(list, measure{lengthMetric(length), true})
		for _, t := range e.Tasks {
			if given.Missing(t) == "" {
				list = append(list, measure{lengthMetric(length) + "." + t.Name, true})
			}
		}
	}
	return list
}

func lengthMetric(length int) string { return "ruler." + strconv.Itoa(length) }

// Arguments implements [evaluation].
func (e *rulerQuestions) Arguments(run, out string) []string {
	return append([]string{"ruler", run, "--batch", strconv.Itoa(e.Batch), "--out", out, "--json", "--lifeline"}, schema.Arguments(e.Keys())...)
}

// Read implements [evaluation].
func (e *rulerQuestions) Read(out vfs.Path) (map[string]float64, error) {
	r, err := ruler.At(out).Report()
	if err != nil {
		return nil, err
	}
	found := map[string]float64{"ruler.average": r.Average}
	for _, l := range r.Lengths {
		found[lengthMetric(l.Length)] = l.Average
		for name, s := range l.Scores {
			if s.Answers < e.Samples {
				return nil, fmt.Errorf("%s: %s at %d has %d of %d answers", out, name, l.Length, s.Answers, e.Samples)
			}
			found[lengthMetric(l.Length)+"."+name] = s.Score
		}
	}
	for _, m := range e.Metrics() {
		if _, ok := found[m.Name]; !ok {
			return nil, fmt.Errorf("%s has no answers for %s", out, m.Name)
		}
	}
	return found, nil
}

// Rows implements [evaluation].
func (e *rulerQuestions) Rows() (string, error) {
	var files []string
	if e.Files.Words != "" {
		entries, err := os.ReadDir(e.Files.Words)
		if err != nil {
			return "", err
		}
		for _, entry := range entries {
			if !entry.IsDir() && strings.Contains("nounlist.txt adjectivelist.txt verblist.txt english_words.json", entry.Name()) {
				files = append(files, filepath.Join(e.Files.Words, entry.Name()))
			}
		}
	}
	for _, path := range []string{e.Files.Essay, e.Files.Squad, e.Files.Hotpot} {
		if path != "" {
			files = append(files, path)
		}
	}
	return hashFiles(files)
}

// Check implements [evaluation].
func (e *rulerQuestions) Check() error {
	_, err := e.Files.Read()
	return err
}

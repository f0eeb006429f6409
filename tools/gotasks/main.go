// Command gotasks makes small evaluation tasks, and training texts for them, from the Go source
// code that every machine with Go has, under Go's licence. `make paper-small` evaluates small
// models on these tasks.
//
//	cloze   predict which of four identifiers comes next, in source that was not trained on
//	recall  find which of four values a key has, in a list of keys with values
//	needle  the same, with the keys in marked lines among lines of source
//
// host/deploy/tasks asks the questions, with the files in examples/paper/tasks.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// options configures the training corpus and the tasks.
type options struct {
	Root  string // directory of Go source, such as $(go env GOROOT)/src
	Bytes int    // total size of source and of texts like recall and needle to train on
	Items int    // number of items in each task
	Seed  uint64
}

// choiceCount is the number of choices per question.
const choiceCount = 4

// item is a question of a task.
type item struct {
	Question string   `json:"question"`
	Choices  []string `json:"choices"`
	Gold     int      `json:"gold"`
}

// corpus holds the training documents and the items of each task.
type corpus struct {
	Documents []string
	Tasks     map[string][]item
}

// newCorpus creates a corpus from source code. The same options give the same result.
func newCorpus(o options) (*corpus, error) {
	train, held, err := read(o)
	if err != nil {
		return nil, err
	}
	m := &corpus{Tasks: map[string][]item{}}
	r := rand.New(rand.NewPCG(o.Seed, 1))
	synthetic := 0
	for _, text := range train {
		m.Documents = append(m.Documents, text)
		for wanted := synthetic + len(text); synthetic < wanted; {
			text := recallText(r)
			if r.IntN(2) == 0 {
				text = needleText(r, train)
			}
			m.Documents = append(m.Documents, text)
			synthetic += len(text)
		}
	}
	asked := rand.New(rand.NewPCG(o.Seed, 2))
	for range o.Items {
		list := pairs(asked, len(slots))
		m.Tasks["recall"] = append(m.Tasks["recall"], lookup(asked, stated(list)+":", list))
		text, list := hidden(asked, held)
		m.Tasks["needle"] = append(m.Tasks["needle"], lookup(asked, text+marked, list))
	}
	if m.Tasks["cloze"] = clozes(asked, held, o.Items); len(m.Tasks["cloze"]) < o.Items {
		return nil, fmt.Errorf("%s has too little source for %d clozes: found %d", o.Root, o.Items,
			len(m.Tasks["cloze"]))
	}
	return m, nil
}

// heldOut means that one in heldOut source files is reserved for tasks.
const heldOut = 20

// read uses a hash to divide the source files below the root into files for training and for tasks.
func read(o options) (train, held []string, err error) {
	size := 0
	err = filepath.WalkDir(o.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "vendor") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(o.Root, path)
		if err != nil {
			return err
		}
		h := fnv.New32a()
		io.WriteString(h, filepath.ToSlash(rel))
		if out := h.Sum32()%heldOut == 0; !out && size >= o.Bytes {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !utf8.Valid(text) {
			return err
		}
		if h.Sum32()%heldOut == 0 {
			held = append(held, string(text))
			return nil
		}
		size += len(text)
		train = append(train, string(text))
		return nil
	})
	if err == nil && !(slices.ContainsFunc(train, quotable) && slices.ContainsFunc(held, quotable)) {
		err = fmt.Errorf("%s has too few Go files: %d to train on, %d for tasks; of each, one must have "+
			"%d bytes of ASCII in a row", o.Root, len(train), len(held), noiseBytes)
	}
	return train, held, err
}

// write writes the training documents as train.jsonl, and each task as NAME/test.jsonl, using
// create to create files.
func (m *corpus) write(create func(path string, write func(io.Writer) error) error) error {
	lines := func(path string, n int, line func(i int) any) error {
		return create(path, func(w io.Writer) error {
			enc := json.NewEncoder(w)
			enc.SetEscapeHTML(false)
			for i := range n {
				if err := enc.Encode(line(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for name, items := range m.Tasks {
		if err := lines(filepath.Join(name, "test.jsonl"), len(items),
			func(i int) any { return items[i] }); err != nil {
			return err
		}
	}
	return lines("train.jsonl", len(m.Documents),
		func(i int) any { return map[string]string{"text": m.Documents[i]} })
}

func main() {
	var o options
	flag.StringVar(&o.Root, "root", "", "directory of Go source, as $(go env GOROOT)/src")
	flag.IntVar(&o.Bytes, "bytes", 4_000_000,
		"bytes of source to train on, and as many again of recall and needle")
	flag.IntVar(&o.Items, "items", 300, "questions of each task")
	flag.Uint64Var(&o.Seed, "seed", 0, "seed of all that is drawn")
	out := flag.String("out", "", "directory to write into")
	flag.Parse()
	if err := run(o, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gotasks:", err)
		os.Exit(1)
	}
}

func run(o options, out string) error {
	if o.Root == "" || out == "" {
		return fmt.Errorf("-root and -out are required: the directory of source and the one to write " +
			"into")
	}
	made, err := newCorpus(o)
	if err != nil {
		return err
	}
	err = made.write(func(name string, write func(io.Writer) error) error {
		path := vfs.At(out).Join(name)
		if err := path.Dir().MkdirAll(); err != nil {
			return err
		}
		return atomicfile.Write(path, write)
	})
	if err == nil {
		fmt.Printf("%d documents to train on, and %d questions of each task, in %s\n",
			len(made.Documents), o.Items, out)
	}
	return err
}

package rundir

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// indexFile is the index in a root directory.
const indexFile = ".runs-index"

// magic begins an index; it changes with the format.
const magic = "cage runs index 4\n"

// longestIndex is more than the index of 100,000 runs has, in bytes.
const longestIndex = 256 << 20

// index is what is kept of the runs below a root. Texts that many runs share are kept
// once.
type index struct {
	Texts []string
	Runs  []indexed
}

// indexed is a run in an index. Numbers stand for texts.
type indexed struct {
	Dir     uint32 // below the root
	Stamps  stamps
	State   uint32
	Err     uint32
	Config  []uint32 // keys and values by turns
	Names   []uint32 // of results
	Results []float64
}

// listRoot returns the runs below a root, by its index where that is still right.
func listRoot(ctx context.Context, root string) ([]*Run, error) {
	path := vfs.At(root).Join(indexFile)
	known := load(path).runs(root)
	list, changed, err := scan(ctx, root, known)
	if err != nil {
		return nil, err
	}
	isRun := len(list) == 1 && list[0].run.Dir == root // which nothing is written into
	if !isRun && (changed || len(list) != len(known)) {
		// A root that cannot be written to is listed all the same.
		_ = save(path, root, list)
	}
	out := make([]*Run, len(list))
	for i, e := range list {
		out[i] = e.run
	}
	return out, nil
}

// entry is a run with the stamps that its files had when it was read.
type entry struct {
	run    *Run
	stamps stamps
}

// scan finds the runs below a root and reads those that are not known as they are now.
func scan(ctx context.Context, root string, known map[string]entry) (list []entry, changed bool, err error) {
	var fresh []int
	var walk func(dir string) error
	walk = func(dir string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, isKnown := known[dir]
		if s, ok := stampsOf(dir, e); ok {
			// What cannot be read may be readable later, without any change of its files.
			if !isKnown || e.stamps != s || e.run.State == Unreadable {
				e = entry{run: &Run{Dir: dir}, stamps: s}
				fresh = append(fresh, len(list))
			}
			list = append(list, e)
			return nil // a run has no runs inside
		}
		children, err := vfs.At(dir).ReadDir()
		if err != nil {
			if dir != root && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)) {
				return nil
			}
			return err
		}
		for _, child := range children {
			if child.IsDir() {
				if err := walk(filepath.Join(dir, child.Name())); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(root); err != nil {
		return nil, false, err
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
	return list, len(fresh) > 0, readers.Wait()
}

// load reads an index; one that is damaged, too large, or of another format, is empty.
func load(path vfs.Path) (x index) {
	content, err := path.ReadSmallFile(longestIndex)
	if err != nil {
		return index{}
	}
	return parse(content)
}

// parse reads the content of an index.
func parse(content []byte) (x index) {
	body, isIndex := bytes.CutPrefix(content, []byte(magic))
	if !isIndex || len(body) < 8 {
		return index{}
	}
	sum, body := body[:8], body[8:]
	if !bytes.Equal(sum, checksum(body)) || gob.NewDecoder(bytes.NewReader(body)).Decode(&x) != nil {
		return index{}
	}
	return x
}

var polynomial = crc64.MakeTable(crc64.ECMA)

func checksum(body []byte) []byte {
	h := crc64.New(polynomial)
	h.Write(body)
	return h.Sum(nil)
}

// runs are those of the index by directory.
func (x index) runs(root string) map[string]entry {
	out := make(map[string]entry, len(x.Runs))
	text := func(i uint32) string {
		if int(i) < len(x.Texts) {
			return x.Texts[i]
		}
		return ""
	}
	for _, e := range x.Runs {
		s := e.Stamps
		r := &Run{Dir: filepath.Join(root, text(e.Dir)), State: State(text(e.State)), Err: text(e.Err),
			Modified: s.modified()}
		r.config = make([]Entry, len(e.Config)/2)
		for i := range r.config {
			r.config[i] = Entry{text(e.Config[2*i]), text(e.Config[2*i+1])}
		}
		r.results = make([]Result, min(len(e.Names), len(e.Results)))
		for i := range r.results {
			r.results[i] = Result{text(e.Names[i]), e.Results[i]}
		}
		out[r.Dir] = entry{r, s}
	}
	return out
}

// save writes the index of a root.
func save(path vfs.Path, root string, list []entry) error {
	var x index
	numbers := map[string]uint32{}
	number := func(text string) uint32 {
		n, ok := numbers[text]
		if !ok {
			n = uint32(len(x.Texts))
			numbers[text] = n
			x.Texts = append(x.Texts, text)
		}
		return n
	}
	for _, e := range list {
		dir, err := filepath.Rel(root, e.run.Dir)
		if err != nil {
			return err
		}
		out := indexed{Dir: number(dir), Stamps: e.stamps, State: number(string(e.run.State)), Err: number(e.run.Err)}
		for _, c := range e.run.config {
			out.Config = append(out.Config, number(c.Key), number(c.Value))
		}
		for _, r := range e.run.results {
			out.Names, out.Results = append(out.Names, number(r.Name)), append(out.Results, r.Value)
		}
		x.Runs = append(x.Runs, out)
	}
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(x); err != nil {
		return fmt.Errorf("index of %s: %w", root, err)
	}
	content := append([]byte(magic), checksum(body.Bytes())...)
	return atomicfile.WriteBytes(path, append(content, body.Bytes()...))
}

package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/data"
)

// ReadDocs reads the rows of JSONL or Parquet files, possibly compressed, in order. Rows of fixed examples may have a
// question and a target instead of the task's columns.
func (t *Task) ReadDocs(files []string, examples bool) ([]Doc, error) {
	var list []Doc
	columns := append([]string{"question", "target"}, t.Columns...)
	for row, err := range data.ReadRows(data.RowOptions{Inputs: files, Columns: columns}) {
		if err != nil {
			return nil, err
		}
		place := fmt.Sprintf("%s: %s %d", row.Path, row.Unit, row.Number)
		if row.Err != nil {
			return nil, fmt.Errorf("%s: %w", place, row.Err)
		}
		d, err := t.NewDoc(place, row.Text, examples)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no rows", strings.Join(files, ", "))
	}
	return list, nil
}

// Files finds the files of a split of the task below a folder, at the places that clones of Hugging Face datasets use:
// DATASET/SPLIT, DATASET/data/SPLIT, or DATASET_SPLIT.
func (t *Task) Files(folder, split string) ([]string, error) {
	if stat, err := os.Stat(folder); err != nil {
		return nil, err
	} else if !stat.IsDir() {
		return nil, fmt.Errorf("%s is no folder", folder)
	}
	starts := []string{filepath.Join(t.Dataset, split), filepath.Join(t.Dataset, "data", split), t.Dataset + "_" + split}
	for _, start := range starts {
		list, err := splitFiles(filepath.Join(folder, start))
		if err != nil || len(list) > 0 {
			return list, err
		}
	}
	return nil, fmt.Errorf("%s has no rows of the split %q of %s: want %s, each with .jsonl or .parquet, or with -00000-of-00001.parquet and so on behind it",
		folder, split, t.Dataset, strings.Join(starts, ", or "))
}

// splitName is what stands behind the name of a split: an ending, or before it the number of a file of several, as the hub
// writes them, with a hash behind it in older ones.
var splitName = regexp.MustCompile(`^(?:-([0-9]{5})-of-([0-9]{5})(?:-[0-9a-f]+)?)?\.(?:jsonl(?:\.gz|\.zst)?|parquet)$`)

// splitFiles lists the files of a split, in order: START.jsonl, or START-00000-of-00002.parquet and all others of these. Any
// other name that begins so is that of other rows, as test_socratic.jsonl is beside test.jsonl.
func splitFiles(start string) (list []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(start))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	by, total := map[string]string{}, "" // files by their numbers, and how many there should be
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filepath.Base(start))
		name := splitName.FindStringSubmatch(rest)
		if !ok || name == nil {
			continue
		}
		file := filepath.Join(filepath.Dir(start), e.Name())
		if other, ok := by[name[1]]; ok {
			return nil, fmt.Errorf("%s and %s have the same rows by their names: keep one of them", other, file)
		}
		if len(list) > 0 && name[2] != total {
			return nil, fmt.Errorf("%s and %s each belong to all rows of the split by their names: keep the files of one of them", list[0], file)
		}
		by[name[1]], total = file, name[2]
		list = append(list, file)
	}
	if err == nil && total != "" {
		err = complete(start, by, total)
	}
	return list, err
}

// complete fails unless all numbered files of a split are there.
func complete(start string, by map[string]string, total string) error {
	n, err := strconv.Atoi(total)
	if err != nil {
		return err
	}
	for i := range n {
		number := fmt.Sprintf("%05d", i)
		if by[number] == "" {
			return fmt.Errorf("%s-%s-of-%s is missing: without it the split has not all its rows", start, number, total)
		}
	}
	if len(by) > n {
		return fmt.Errorf("%s has %d files of %s by their names: keep those of one set", start, len(by), total)
	}
	return nil
}

package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data"
)

// ReadDocs reads the rows of JSONL or Parquet files, each also compressed, in order. Those of fixed examples may have a
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

// Files finds the files of a split of the task below a folder, where clones of the hub's data sets have them:
// DATASET/SPLIT*, DATASET/data/SPLIT*, or DATASET_SPLIT*, with the ending .jsonl or .parquet, each also compressed.
func (t *Task) Files(folder, split string) ([]string, error) {
	if stat, err := os.Stat(folder); err != nil {
		return nil, err
	} else if !stat.IsDir() {
		return nil, fmt.Errorf("%s is no folder", folder)
	}
	starts := []string{filepath.Join(t.Dataset, split), filepath.Join(t.Dataset, "data", split), t.Dataset + "_" + split}
	for _, start := range starts {
		list, err := beginning(filepath.Join(folder, start))
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			return list, sameRows(list)
		}
	}
	return nil, fmt.Errorf("%s has no rows of the split %q of %s: want %s, as .jsonl or .parquet", folder, split, t.Dataset, strings.Join(starts, "*, or ")+"*")
}

// rowEndings are those of files with rows.
var rowEndings = []string{".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet"}

// sameRows fails where two files differ in their formats only: their questions would count twice.
func sameRows(files []string) error {
	by := map[string]string{}
	for _, file := range files {
		stem := file
		for _, ending := range rowEndings {
			stem = strings.TrimSuffix(stem, ending)
		}
		if other, ok := by[stem]; ok {
			return fmt.Errorf("%s and %s have the same rows by their names: keep one of them", other, file)
		}
		by[stem] = file
	}
	return nil
}

// beginning lists the files of rows whose path begins so, in order.
func beginning(start string) (list []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(start))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		name := e.Name()
		rows := slices.ContainsFunc(rowEndings, func(end string) bool { return strings.HasSuffix(name, end) })
		if rest, ok := strings.CutPrefix(name, filepath.Base(start)); ok && rows && rest != "" && (rest[0] == '.' || rest[0] == '-' || rest[0] == '_') {
			list = append(list, filepath.Join(filepath.Dir(start), name))
		}
	}
	return list, err
}

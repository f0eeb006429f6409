package ruler

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"github.com/cage-qat/cage/internal/vfs"
)

// Directory stores prompts and answers as RULER's scripts do: those of length L are in
// L/data/TASK/validation.jsonl and L/pred/TASK.jsonl. ruler.json says what they were made
// with.
type Directory struct{ path vfs.Path }

// At returns the directory at path, which need not exist yet.
func At(path vfs.Path) Directory { return Directory{path} }

func (d Directory) manifest() vfs.Path { return d.path.Join("ruler.json") }

func (d Directory) prompts(length int, t Task) vfs.Path {
	return d.path.Join(strconv.Itoa(length), "data", t.Name, "validation.jsonl")
}

func (d Directory) answers(length int, t Task) vfs.Path {
	return d.path.Join(strconv.Itoa(length), "pred", t.Name+".jsonl")
}

// lock keeps other processes from writing to the directory.
func (d Directory) lock() (vfs.Lock, error) {
	if err := d.path.MkdirAll(); err != nil {
		return nil, err
	}
	lock, err := d.path.Join(vfs.LockFile).Lock()
	if errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("%s: another process is working on it", d.path)
	}
	return lock, err
}

// lengths are those for which there are prompts or answers.
func (d Directory) lengths() ([]int, error) {
	entries, err := d.path.ReadDir()
	if err != nil {
		return nil, err
	}
	var list []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 && strconv.Itoa(n) == e.Name() && e.IsDir() {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

// hasPrompts tells whether there are prompts of a task for any length.
func (d Directory) hasPrompts(task string) (bool, error) {
	lengths, err := d.lengths()
	if err != nil {
		return false, err
	}
	for _, length := range lengths {
		if there, err := d.prompts(length, Task{Name: task}).Exists(); there || err != nil {
			return there, err
		}
	}
	return false, nil
}

// missing tells whether an error says that a file is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

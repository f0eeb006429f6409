package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// Answers returns the directory of the answers in the folder of an evaluation.
func Answers(dir vfs.Path) vfs.Path { return dir.Join("answers") }

// AnswersFile returns the path of the answers to a task.
func AnswersFile(dir vfs.Path, task string) vfs.Path { return Answers(dir).Join(task + ".jsonl") }

// resultsFile is the file of all results in a folder.
func resultsFile(dir vfs.Path) vfs.Path { return dir.Join("results.json") }

// OneModel returns an error if a folder has answers, to any task, of another model than the given one, which is the
// setting "model" of [Asking]: results of both would be side by side.
func OneModel(dir vfs.Path, model string) error {
	entries, err := Answers(dir).ReadDir()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".jsonl" {
			continue
		}
		path := Answers(dir).Join(e.Name())
		other, err := modelOf(path)
		if err != nil {
			return err
		}
		if other != "" && other != model {
			return fmt.Errorf("%s has answers of another model (%s, not %s): give another --out", path, other, model)
		}
	}
	return nil
}

// CheckOurs fails if the samples of a task, or the results, would replace a file of somebody else in the folder. Samples are ours
// where the answers are from which they are made.
func CheckOurs(dir vfs.Path, task string) error {
	answered, err := AnswersFile(dir, task).Exists()
	if err != nil {
		return err
	}
	_, err = readResults(dir)
	return errors.Join(err, atomicfile.CheckOurs(samplesFile(dir, task), func(io.Reader) bool { return answered }))
}

// modelOf is the model that the first line of a file of answers names; "" where the line is not whole.
func modelOf(path vfs.Path) (string, error) {
	for first, err := range jsonlines.Read[header](path) {
		if _, damaged := errors.AsType[*jsonlines.Error](err); damaged {
			return "", nil
		}
		return first.Value.Settings["model"], err
	}
	return "", nil
}

// Write writes the samples of tasks, and adds results to results.json, which keeps the results of other tasks in the
// folder.
func Write(dir vfs.Path, list []*Result, results *Results) error {
	for _, r := range list {
		if err := WriteSamples(samplesFile(dir, r.Task.Name), r.Samples); err != nil {
			return err
		}
	}
	all, err := readResults(dir)
	if err != nil {
		return err
	}
	all.add(results)
	return atomicfile.WriteJSON(resultsFile(dir), all)
}

// readResults reads the results of a folder: empty ones where there are none. A file that is not what Write writes is an
// error.
func readResults(dir vfs.Path) (*Results, error) {
	out := newResults(nil)
	err := atomicfile.CheckOurs(resultsFile(dir), func(text io.Reader) bool {
		d := json.NewDecoder(text)
		d.DisallowUnknownFields()
		return d.Decode(out) == nil
	})
	return out, err
}

// add takes the results of more tasks, in the place of earlier ones of the same.
func (r *Results) add(more *Results) {
	maps.Copy(r.Results, more.Results)
	maps.Copy(r.Shots, more.Shots)
	maps.Copy(r.Samples, more.Samples)
	maps.Copy(r.Versions, more.Versions)
	maps.Copy(r.Groups, more.Groups)
	maps.Copy(r.Configs, more.Configs)
	maps.Copy(r.Higher, more.Higher)
	r.Config = more.Config
}

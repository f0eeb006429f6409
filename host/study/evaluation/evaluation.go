// Package evaluation is what the trained models of a study can be asked: which commands ask it, what it measures, and how
// what came out is read.
//
// It starts no process and knows no model; which cells are asked, and when, is the business of host/study.
package evaluation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/cage-qat/cage/internal/vfs"
)

// Evaluation is something that a model is asked.
type Evaluation interface {
	// ID is fit for a file name. Evaluations of the same ID ask a model the same, as long as [Evaluation.Rows] is the same.
	ID() string
	// Metrics are what it measures, in order.
	Metrics() []Metric
	// Arguments are those of the command cage that asks the model of a run directory, and leaves the answers in the directory
	// out. Interrupted, it goes on with the same arguments. What it prints is kept in the file [OutputFile] there.
	Arguments(run, out string) []string
	// Lock is the file in out that is locked while the command works there.
	Lock(out vfs.Path) vfs.Path
	// Read reads what the command has left, by the names of metrics. Logs of commands are not part of it.
	Read(out vfs.Path) (map[string]float64, error)
	// Rows is a hash of the files that questions are made of. The error is about a file that is missing or cannot be read.
	Rows() (string, error)
	// Check reads these files and makes the questions, to find what is wrong before a model is asked.
	Check() error
}

// OutputFile holds what the command has printed.
const OutputFile = "output.json"

// Metric is a number that is measured.
type Metric struct {
	Name   string // such as "hellaswag.acc_norm"
	Higher bool   // the higher, the better
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._]+`)

// identify makes an ID of what an evaluation is called and what it depends on.
func identify(name string, of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // texts and numbers only
	}
	sum := sha256.Sum256(text)
	const longest = 60 // leaves room for the hash in a file name
	name = strings.Trim(unfit.ReplaceAllString(name, "-"), "-.")
	return name[:min(len(name), longest)] + "-" + hex.EncodeToString(sum[:6])
}

// hashFiles is a hash of the contents of files, one after the other.
func hashFiles(files []string) (string, error) {
	all := sha256.New()
	for _, path := range files {
		one, err := hashFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(all, one)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

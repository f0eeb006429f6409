package study

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cage-qat/cage/internal/vfs"
)

// evaluation is something that a model is asked, such as the questions of a benchmark.
type evaluation interface {
	// ID identifies the evaluation and is fit for a file name. Evaluations with the same ID ask a
	// model the same questions, as long as their Rows are the same.
	ID() string
	// Metrics lists what is measured, in order.
	Metrics() []measure
	// Arguments returns the arguments of the cage command that asks the model in the directory run,
	// and leaves the answers in the directory out. After an interruption it continues if given the
	// same arguments. Its output is kept in [outputFile] there.
	Arguments(run, out string) []string

	// Read reads the results that the command has left in out, by the names of the metrics. Logs of
	// the command do not affect it.
	Read(out vfs.Path) (map[string]float64, error)
	// Rows returns a hash of the files that questions are made of. The error is about a file that
	// is missing or unreadable.
	Rows() (string, error)
	// Check reads these files and makes the questions, to find problems before a model is asked.
	Check() error
}

// outputFile is the name of the file that holds the output of the command.
const outputFile = "output.json"

// measure is a quantity that an evaluation measures.
type measure struct {
	Name   string // such as "hellaswag.acc_norm"
	Higher bool   // whether higher is better
}

// identify makes an ID of what an evaluation is called and what it depends on.
func identify(name string, of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // texts and numbers only
	}
	sum := sha256.Sum256(text)
	const longest = 60 // leaves room for the hash in a file name
	name = strings.Trim(notInFileNames.ReplaceAllString(name, "-"), "-.")
	return name[:min(len(name), longest)] + "-" + hex.EncodeToString(sum[:6])
}

// hashFiles is a hash of the contents of files, one after the other.
func hashFiles(files []string) (string, error) {
	all := sha256.New()
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		one := sha256.New()
		_, err = io.Copy(one, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%x\n", one.Sum(nil))
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

package data

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
)

// Reason explains why a file was left out.
type Reason string

// Possible values of Reason.
const (
	Binary      Reason = "binary"        // it contains a zero byte
	InvalidUTF8 Reason = "not UTF-8"     // not valid UTF-8
	Empty       Reason = "empty"         // only white space
	Hidden      Reason = "hidden"        // the name of the file or folder begins with a dot
	Link        Reason = "symbolic link" // links are not followed, except inputs
	Special     Reason = "special file"  // a pipe, a socket or a device

	Own    Reason = "the data set's own"        // written by an earlier preparation of the same folder
	NoRows Reason = "neither JSONL nor Parquet" // by its name, if rows are required
)

const isText Reason = ""

// reasons lists the reasons in the order in which they are reported.
var reasons = []Reason{Binary, InvalidUTF8, Empty, NoRows, Hidden, Link, Special, Own}

const maxNames = 5

// LeftOut describes the files that were left out of a dataset for one reason.
type LeftOut struct {
	Reason Reason `json:"reason"`
	// Files is the number of files; a hidden folder counts as one.
	Files int `json:"files"`
	// Names lists the first few files.
	Names []string `json:"names"`
}

// String describes the files for a message.
func (l LeftOut) String() string {
	return fmt.Sprintf("%s (%d: %s)", l.Reason, l.Files, l.List())
}

// List returns the first few names, followed by an ellipsis if the list is incomplete.
func (l LeftOut) List() string {
	list := strings.Join(l.Names, ", ")
	if l.Files > len(l.Names) {
		list += ", …"
	}
	return list
}

type leftOut map[Reason]*LeftOut

func (l leftOut) add(r Reason, name string) {
	if l[r] == nil {
		l[r] = &LeftOut{Reason: r}
	}
	l[r].Files++
	if len(l[r].Names) < maxNames {
		l[r].Names = append(l[r].Names, filepath.ToSlash(name))
	}
}

func (l leftOut) list() []LeftOut {
	list := []LeftOut{}
	for _, r := range reasons {
		if l[r] != nil {
			list = append(list, *l[r])
		}
	}
	return list
}

// String describes all files that were left out, for the end of an error message. It returns "" if
// there are none.
func (l leftOut) String() string {
	parts := lists.Map(l.list(), LeftOut.String)
	if len(parts) == 0 {
		return ""
	}
	text := "; left out: " + strings.Join(parts, ", ")
	if l[Binary] != nil {
		text += "; " + NameHint
	}
	return text
}

// NameHint is added to messages about binary files.
const NameHint = "compressed files and Parquet are read only with the extensions " +
	".gz, .zst, .parquet"

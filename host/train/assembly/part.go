package assembly

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/cage-qat/cage/host/data/chat/rows"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/regular"
)

// Part is what a model is trained or evaluated on: either texts, as a [dataset.File], or
// conversations, as a [rows.File].
type Part interface {
	Path() string    // path of the first file
	Paths() []string // paths of all files
	Tokenizer() tokenizer.Info
	Len() int64     // number of tokens
	SHA256() string // hash of the tokens, in lower-case hexadecimal
	// VerifyPaced checks the files against their hashes, calling pause now and then.
	VerifyPaced(ctx context.Context, pause func(worked time.Duration)) error
	Close() error
}

// openFiles opens files of the given kind of data, as one.
func openFiles(kind string, paths ...string) (Part, error) {
	if kind != config.KindChat {
		f, err := dataset.Open(paths...)
		if err != nil {
			return nil, err // no Part with nothing in it
		}
		return f, nil
	}
	if len(paths) != 1 {
		return nil, fmt.Errorf("%d chat files, want one", len(paths))
	}
	f, err := rows.Open(paths[0])
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenPart opens a token file, or several that a pattern names, or a chat file, whatever its name is.
func OpenPart(path string) (Part, error) { return openFiles(kindOfFile(path), path) }

// kindOfFile is the kind of data that a file begins like. What it cannot read is for the one who opens it to report.
func kindOfFile(path string) string {
	f, err := regular.Open(path)
	if err != nil {
		return config.KindText
	}
	defer f.Close()
	begin := make([]byte, len(rows.Magic))
	if _, err := io.ReadFull(f, begin); err != nil || string(begin) != rows.Magic {
		return config.KindText
	}
	return config.KindChat
}

// KindOf is the kind of data that a part holds.
func KindOf(p Part) string {
	if _, ok := p.(*rows.File); ok {
		return config.KindChat
	}
	return config.KindText
}

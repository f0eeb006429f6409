package assembly

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/train/config"
)

// openFiles opens token files of the given kind of data, as one.
func openFiles(kind string, paths ...string) (*dataset.File, error) {
	f, err := dataset.Open(paths...)
	if err != nil {
		return nil, err
	}
	if holds := KindOf(f); holds != kind {
		return nil, errors.Join(fmt.Errorf("%s holds data of kind %q, want %q", f.Path(), holds, kind), f.Close())
	}
	return f, nil
}

// KindOf is the kind of data that a token file holds.
func KindOf(f *dataset.File) string {
	if f.Conversations() {
		return config.KindChat
	}
	return config.KindText
}

package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cage-qat/cage/host/data/dataset"
)

// verification compares token files with their hashes while the first steps run. The first
// checkpoint waits for it, so that nothing computed from a damaged file is kept.
type verification struct {
	files []*dataset.File
	stop  context.CancelFunc
	done  chan struct{}
	err   error // valid once done is closed
	// awaited ends when somebody waits: until then the processors are left to the
	// training. hurry ends it.
	awaited context.Context
	hurry   context.CancelFunc
}

// idleShare is how long a verification that nobody waits for pauses, relative to how long
// it works: it takes a tenth of one processor.
const idleShare = 9

// pause leaves the processors to others for a while, or until somebody waits.
func (v *verification) pause(worked time.Duration) {
	select {
	case <-v.awaited.Done():
	case <-time.After(idleShare * worked):
	}
}

// verifyFiles begins the verification of files, one after the other.
func verifyFiles(files ...*dataset.File) *verification {
	ctx, stop := context.WithCancel(context.Background())
	v := &verification{files: files, stop: stop, done: make(chan struct{})}
	v.awaited, v.hurry = context.WithCancel(ctx)
	go func() {
		defer close(v.done)
		for _, f := range files {
			if err := f.VerifyPaced(ctx, v.pause); err != nil {
				v.err = err
				return
			}
		}
	}()
	return v
}

// failed returns the error that is known so far. A nil verification is of no files.
func (v *verification) failed() error {
	if v == nil {
		return nil
	}
	select {
	case <-v.done:
		return v.err
	default:
		return nil
	}
}

// wait returns when all files are verified, or one is known to be damaged.
func (v *verification) wait() error {
	if v == nil {
		return nil
	}
	v.hurry()
	<-v.done
	return v.err
}

// close ends the verification; the files can be closed then.
func (v *verification) close() {
	if v != nil {
		v.stop()
		<-v.done
	}
}

// errData is wrapped by the error of a run whose data is not intact.
var errData = errors.New("nothing was saved")

// damagedData is the error of a run whose data is not intact.
func damagedData(err error) error {
	return fmt.Errorf("%w; %w: put the file in order and begin the run again, or resume it", err, errData)
}

// verifiedFile is a token file in the provenance of a run, or several that are one part of the data.
type verifiedFile struct {
	Path   string   `json:"path"`            // path of the first file
	Files  []string `json:"files,omitempty"` // paths of all files, if there are several
	Tokens int64    `json:"tokens"`
	SHA256 string   `json:"sha256"` // of several files, the hash of their hashes
}

// list describes files that are known to be intact.
func (v *verification) list() []verifiedFile {
	var list []verifiedFile
	for _, f := range v.files {
		described := verifiedFile{Path: f.Path(), Tokens: f.Len(), SHA256: f.SHA256()}
		if paths := f.Paths(); len(paths) > 1 {
			described.Files = paths
		}
		list = append(list, described)
	}
	return list
}

// patience is how long the verification is waited for before a message says so.
const patience = 2 * time.Second

// awaitData returns when the data of the run is known to be intact and the provenance
// says so.
func (r *run) awaitData() error {
	if r.verification == nil || r.verified != nil {
		return nil
	}
	r.verification.hurry()
	select {
	case <-r.verification.done:
	case <-time.After(patience):
		r.log.Info("waiting until the token files are verified: nothing is saved before")
	}
	if err := r.verification.wait(); err != nil {
		return damagedData(err)
	}
	r.verified = r.verification.list()
	err := r.writeProvenance()
	if err != nil {
		r.verified = nil // so that it is written with the next checkpoint
	}
	return err
}

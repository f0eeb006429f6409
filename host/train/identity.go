package train

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// A run has an identity, a random text that is made with it and stands in its
// provenance.json and in its checkpoints: run directories and checkpoints are found by
// name, and another run may have got that name meanwhile. Runs of versions that gave
// none are accepted, and get one when they go on.

// ErrReplaced is wrapped by the error of a run whose directory was removed, or replaced
// by another one, during training. Such a run writes nothing more.
var ErrReplaced = errors.New("the run directory was removed or replaced")

// identityKey is the entry of a checkpoint's metadata that holds the run's identity.
const identityKey = "run"

func newIdentity() string { return rand.Text() }

// identityOf returns the identity that a checkpoint has, empty for none.
func identityOf(m checkpoint.Meta) (id string, err error) {
	err = m.GetIf(identityKey, &id)
	return id, err
}

// CheckOwner fails if a checkpoint, given by its step and metadata, does not belong to
// the run in dir. If either of them has no identity, the checkpoint is accepted.
func CheckOwner(dir rundir.Dir, step int, m checkpoint.Meta) error {
	made, err := readProvenance(dir)
	if err != nil {
		return err
	}
	return made.checkOwner(dir, step, m)
}

// checkOwner is CheckOwner for the run that was made so.
func (p *provenance) checkOwner(dir rundir.Dir, step int, m checkpoint.Meta) error {
	id, err := identityOf(m)
	if err != nil {
		return err
	}
	if id != "" && p.Run != "" && id != p.Run {
		return fmt.Errorf("%s: the checkpoint %s belongs to another run (%s; this one is %s): move it away",
			dir, checkpoint.FileName(step), id, p.Run)
	}
	return nil
}

// checkDirectory fails when the lock that this run holds is not in its directory any
// more.
func (r *run) checkDirectory() error {
	dir := r.cfg.Train.Out
	held, err := r.lock.Stat()
	if err != nil {
		return fmt.Errorf("lock of %s: %w", dir, err)
	}
	found, err := r.dir.Lock().Stat()
	if err == nil && vfs.SameFile(held, found) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lock of %s: %w", dir, err)
	}
	return fmt.Errorf("%s: %w while this run was training in it: nothing more is written there", dir, ErrReplaced)
}

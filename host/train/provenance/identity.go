package provenance

import (
	"crypto/rand"
	"fmt"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
)

// A run has an identity, a random text that is made with it and stands in its
// provenance.json and in its checkpoints: run directories and checkpoints are found by
// name, and another run may have got that name meanwhile. Runs of versions that gave
// none are accepted, and get one when they go on.

// NewIdentity draws an identity.
func NewIdentity() string { return rand.Text() }

// IdentityOf returns the identity that a checkpoint has, empty for none.
func IdentityOf(m checkpoint.Meta) (id string, err error) {
	err = m.GetIf(identityKey, &id)
	return id, err
}

// CheckOwner fails if a checkpoint, given by its step and metadata, does not belong to
// the run in dir. If either of them has no identity, the checkpoint is accepted.
func CheckOwner(dir rundir.Dir, step int, m checkpoint.Meta) error {
	made, err := Read(dir)
	if err != nil {
		return err
	}
	return made.CheckOwner(dir, step, m)
}

// CheckOwner is [CheckOwner] for the run that was made so.
func (p *Record) CheckOwner(dir rundir.Dir, step int, m checkpoint.Meta) error {
	id, err := IdentityOf(m)
	if err != nil {
		return err
	}
	if id != "" && p.Run != "" && id != p.Run {
		return fmt.Errorf("%s: the checkpoint %s belongs to another run (%s; this one is %s): move it away",
			dir, checkpoint.FileName(step), id, p.Run)
	}
	return nil
}

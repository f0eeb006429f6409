package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Batches are the micro-batches of one step, on the device or on their way to it.
type Batches struct {
	c    *Compiled
	host [][]int32
	// all holds them for a step as one executable, replica after replica.
	all *engine.Buffer
	// each holds them one by one, for the chain.
	each []*engine.Buffer
}

// Load uploads the micro-batches of one step, each given as flat [batch, context+1] token
// ids, where batch counts the sequences of all replicas together. The slices must not
// change until the step is done. Load may be called while a step runs, so that the next
// step's input is on the device in time.
func (c *Compiled) Load(batches [][]int32) (*Batches, error) {
	p := &c.plan
	if len(batches) != p.Accumulate {
		return nil, fmt.Errorf("step: %d micro-batches, the plan has %d", len(batches), p.Accumulate)
	}
	n := c.dev.Count()
	for _, d := range p.batchDims() {
		n *= d
	}
	for i, b := range batches {
		if len(b) != n {
			return nil, fmt.Errorf("step: micro-batch %d has %d elements, the plan needs %d", i, len(b), n)
		}
	}
	b := &Batches{c: c, host: batches}
	var err error
	if c.isSingle() {
		_, err = b.stacked()
	} else {
		_, err = b.separate()
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close frees the device buffers. Running a step with the batches does so, too.
func (b *Batches) Close() {
	b.all.Finalize()
	engine.FinalizeAll(b.each...)
	b.all, b.each = nil, nil
}

// stacked uploads the input of a step as one executable, if it is not there yet.
func (b *Batches) stacked() (*engine.Buffer, error) {
	if b.all != nil {
		return b.all, nil
	}
	replicas := b.c.dev.Count()
	part := len(b.host[0]) / replicas
	tokens := make([]int32, 0, len(b.host)*len(b.host[0]))
	for r := range replicas {
		for _, batch := range b.host {
			tokens = append(tokens, batch[r*part:(r+1)*part]...)
		}
	}
	dims := append([]int{replicas * len(b.host)}, b.c.plan.batchDims()...)
	var err error
	b.all, err = engine.UploadSharded(b.c.dev, tokens, dims...)
	return b.all, err
}

// separate uploads the inputs of the chain, as far as they are not there yet.
func (b *Batches) separate() ([]*engine.Buffer, error) {
	for len(b.each) < len(b.host) {
		t, err := b.c.uploadBatch(b.host[len(b.each)])
		if err != nil {
			return nil, err
		}
		b.each = append(b.each, t)
	}
	return b.each, nil
}

// uploadBatch uploads one batch of all replicas together.
func (c *Compiled) uploadBatch(tokens []int32) (*engine.Buffer, error) {
	dims := slices.Clone(c.plan.batchDims())
	dims[0] *= c.dev.Count()
	return engine.UploadSharded(c.dev, tokens, dims...)
}

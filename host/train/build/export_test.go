package build

import (
	"errors"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/config"
)

// Functions that are exported for the tests.
var (
	AvailableIn = availableIn
	Decide      = decide
	NewReport   = newReport
	Remedies    = remedies
)

// EstimateOf compares what a run needs with the given memory.
func EstimateOf(cfg *config.Config, m model.Model, programs *Programs,
	available *Available) (r *Report, err error) {
	dev, err := Device(cfg, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if r, err = needOn(dev, programs)(cfg, m); err != nil {
		return nil, err
	}
	return newReport(r.By, r.Parts, available, nil), nil
}

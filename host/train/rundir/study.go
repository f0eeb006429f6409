package rundir

// Names in the directory of a study, which contains run directories.
const (
	StudyFile  = "study.toml" // what the study asks for
	StudyCells = "cells"      // a directory for each cell; if the cell is trained, it is its run directory
	StudyModel = "model"      // in the directory of a cell that is quantized and not trained: its run directory
	StudyStale = "stale"      // run directories that were put aside
)

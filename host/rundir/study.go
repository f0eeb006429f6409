package rundir

// Names in the directory of a study, in which run directories lie.
const (
	StudyFile  = "study.toml" // what the study asks for
	StudyCells = "cells"      // a directory for each cell, which is the run directory of one that is trained
	StudyModel = "model"      // in the directory of a cell: the run directory of one that is quantized and not trained
	StudyStale = "stale"      // run directories that were put aside
)

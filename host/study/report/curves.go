package report

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// curves draws a metric of the records against the step: for each series, the mean over its
// replicates.
func (f drawing) curves() (figure.Picture, string, error) {
	const fewPoints = 20 // the largest number of points of a curve with marks
	g := f.group(f.Series)
	out := &figure.Chart{
		X: figure.Axis{Label: "step", Log: f.LogX},
		Y: figure.Axis{Label: metrics.Label(f.Metric), Log: f.LogY},
	}
	var n counts
	for _, series := range g.labels[0] {
		var runs []curve
		for _, r := range g.at(series) {
			cell := r.result.Cell
			if !r.result.Trained() && !r.result.Diverged || cell.Quantize != nil { // it has no steps
				continue
			}
			c, err := readCurve(rundir.At(cell.Run).Metrics(), f.Metric)
			if r.result.Diverged && errors.Is(err, fs.ErrNotExist) {
				continue // it was not trained, because its source diverged
			}
			if err != nil {
				f.damaged[cell.ID] = err
			} else if len(c.steps) > 0 {
				runs = append(runs, c)
			}
		}
		n.add(len(runs))
		line := figure.Series{Name: seriesName(f.Series, series), Line: figure.Varied, Band: true}
		line.Points = average(runs)
		line.Marks = len(line.Points) <= fewPoints
		out.Series = append(out.Series, line)
	}
	return out, n.note(meanSD, f.Over), nil
}

type curve struct {
	steps  []int
	values map[int]float64
}

// readCurve reads a number of the records in a metrics.jsonl by its name.
func readCurve(path vfs.Path, metric string) (curve, error) {
	c := curve{values: map[int]float64{}}
	for r, err := range metrics.Each[metrics.Record](path) {
		if err != nil {
			return curve{}, err
		}
		for _, v := range r.Values() {
			if v.Name != metric {
				continue
			}
			if _, again := c.values[r.Step]; !again {
				c.steps = append(c.steps, r.Step)
			}
			c.values[r.Step] = v.Number
		}
	}
	return c, nil
}

// average returns the mean over runs, with the standard deviation as interval, at the steps that
// all runs have. A mean over fewer runs would jump where a run ends or skips a record.
func average(runs []curve) (out []figure.Point) {
	if len(runs) == 0 {
		return nil
	}
	for _, step := range runs[0].steps {
		var x []float64
		for _, r := range runs {
			if v, ok := r.values[step]; ok {
				x = append(x, v)
			}
		}
		if len(x) == len(runs) {
			d := study.Describe(x)
			out = append(out, figure.Point{X: float64(step), Y: d.Mean, Minus: spread(d), Plus: spread(d)})
		}
	}
	return out
}

// trajectories draws the path of each cell, projected onto the first two principal components of
// all points of all paths.
func (f drawing) trajectories() (figure.Picture, string, error) {
	g := f.group(f.Series, f.study.OtherAxes(f.Series))
	out := &figure.Chart{Equal: true}
	var paths [][][]float64
	for i, series := range g.labels[0] {
		name := seriesName(f.Series, series)
		for _, label := range g.labels[1] {
			for _, r := range g.at(series, label) {
				if !r.result.Trained() {
					continue
				}
				path, err := readTrajectory(rundir.At(r.result.Cell.Run).Trajectory())
				if errors.Is(err, fs.ErrNotExist) {
					return nil, "", err // the runs of this study record no trajectories
				}
				if err != nil {
					f.damaged[r.result.Cell.ID] = err
					continue
				}
				paths = append(paths, path)
				line := figure.Series{Name: name, Color: i + 1, Line: figure.Varied, Ends: true}
				out.Series = append(out.Series, line)
				name = "" // the legend has each series once
			}
		}
	}
	if len(paths) == 0 {
		return out, "", nil
	}
	projected, share, err := project(paths)
	if err != nil {
		return nil, "", err
	}
	for i, path := range projected {
		out.Series[i].Points = path
	}
	for i, axis := range []*figure.Axis{&out.X, &out.Y} {
		axis.Label = fmt.Sprintf("component %d (%.0f %% of variance)", i+1, 100*share[i])
	}
	return out, "A ring marks where a path begins, a disc where it ends.", nil
}

// project projects paths onto the first two principal components of all their points, and returns
// the fraction of the variance that each explains. The signs of components are arbitrary, so each
// gets the sign that makes its largest entry positive.
func project(paths [][][]float64) (out [][]figure.Point, share [2]float64, err error) {
	rows, width := 0, len(paths[0][0])
	for _, path := range paths {
		rows += len(path)
		if len(path[0]) != width {
			return nil, share, fmt.Errorf("trajectories of %d and %d parameters cannot be projected "+
				"together; restrict the figure with where", width, len(path[0]))
		}
	}
	all := mat.NewDense(rows, width, nil)
	center := make([]float64, width)
	row := 0
	for _, path := range paths {
		for _, x := range path {
			all.SetRow(row, x)
			for j, v := range x {
				center[j] += v / float64(rows)
			}
			row++
		}
	}
	var pc stat.PC
	if !pc.PrincipalComponents(all, nil) {
		return nil, share, fmt.Errorf("the principal components of %d points of %d parameters "+
			"could not be computed", rows, width)
	}
	var vectors mat.Dense
	pc.VectorsTo(&vectors)
	variances, total := pc.VarsTo(nil), 0.0
	for _, v := range variances {
		total += v
	}
	axes := [2][]float64{make([]float64, width), make([]float64, width)}
	_, components := vectors.Dims()
	for i := range min(2, components) {
		mat.Col(axes[i], i, &vectors)
		largest := 0.0
		for _, x := range axes[i] {
			if math.Abs(x) > math.Abs(largest)*(1+1e-9) {
				largest = x
			}
		}
		if largest < 0 {
			for j := range axes[i] {
				axes[i][j] = -axes[i][j]
			}
		}
		if total > 0 {
			share[i] = variances[i] / total
		}
	}
	for _, path := range paths {
		var projected []figure.Point
		for _, x := range path {
			var at figure.Point
			for j, v := range x {
				at.X += (v - center[j]) * axes[0][j]
				at.Y += (v - center[j]) * axes[1][j]
			}
			projected = append(projected, at)
		}
		out = append(out, projected)
	}
	return out, share, nil
}

// maxSteps is the maximum number of points in a path; longer ones are thinned evenly. More would
// not be visible, and the decomposition would take too long.
const maxSteps = 512

// readTrajectory reads the points in trajectory.jsonl up to the first that is not finite, thinned
// to maxSteps. Both ends are kept.
func readTrajectory(path vfs.Path) ([][]float64, error) {
	list, err := metrics.Read[metrics.Point](path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (only models with few parameters record trajectories)", err)
	}
	if err != nil {
		return nil, err
	}
	var points [][]float64
	for _, p := range list {
		x, finite := make([]float64, len(p.X)), true
		for i, v := range p.X {
			x[i] = float64(v)
			finite = finite && math.Abs(x[i]) < math.Inf(1)
		}
		if !finite {
			break
		}
		if len(x) == 0 || len(points) > 0 && len(x) != len(points[0]) {
			return nil, fmt.Errorf("%s: step %d has %d parameters, want as many as the first step, "+
				"and at least one", path, p.Step, len(x))
		}
		points = append(points, x)
	}
	if len(points) == 0 {
		return nil, fmt.Errorf("%s has no finite point", path)
	}
	if len(points) <= maxSteps {
		return points, nil
	}
	thinned := make([][]float64, maxSteps)
	for i := range thinned {
		thinned[i] = points[i*(len(points)-1)/(maxSteps-1)]
	}
	return thinned, nil
}

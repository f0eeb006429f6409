package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"gonum.org/v1/gonum/mat"
	gonum "gonum.org/v1/gonum/stat"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// curves has a metric of the records over the steps, for each series the mean over its
// replicates.
func curves(s *study.Study, f study.Figure, results []study.Result) (picture, error) {
	g, err := group(s, results, f.Over, f.Where, f.Series)
	if err != nil {
		return picture{}, err
	}
	out := &figure.Chart{X: figure.Axis{Label: "step", Log: f.LogX}, Y: figure.Axis{Label: metrics.Label(f.Metric), Log: f.LogY}}
	var n counts
	for _, series := range g.labels[0] {
		var runs []curve
		for _, r := range g.at(series) {
			if !r.result.Trained() && !r.result.Diverged || r.result.Cell.Quantize != nil { // what is quantized after training has no steps
				continue
			}
			c, err := readCurve(rundir.At(r.result.Cell.Run).Metrics(), f.Metric)
			if err != nil {
				return picture{}, &damageError{r.result.Cell.ID, err}
			}
			if len(c.steps) > 0 {
				runs = append(runs, c)
			}
		}
		n.add(len(runs))
		line := figure.Series{Name: seriesName(f.Series, series), Line: figure.Varied, Band: true, Points: average(runs)}
		line.Marks = len(line.Points) <= fewPoints
		out.Series = append(out.Series, line)
	}
	return meanPicture(out, n, "Mean ± standard deviation", f), nil
}

// fewPoints is the number of points up to which each point of a curve has a mark.
const fewPoints = 20

// curve is a metric of a run, in the order of the steps.
type curve struct {
	steps  []int
	values map[int]float64
}

// readCurve reads a field of metrics.jsonl by its JSON name, whatever fields there are.
func readCurve(path vfs.Path, metric string) (curve, error) {
	c := curve{values: map[int]float64{}}
	for record, err := range jsonlines.Read[map[string]json.RawMessage](path) {
		if errors.Is(err, jsonlines.ErrTorn) {
			break
		}
		if err != nil {
			return curve{}, err
		}
		raw, ok := record.Value[metric]
		if !ok {
			continue
		}
		var step int
		var value metrics.Number
		if err := json.Unmarshal(record.Value["step"], &step); err != nil {
			return curve{}, &jsonlines.Error{Path: path, Line: record.Line, Err: fmt.Errorf("step: %w", err)}
		}
		if err := value.UnmarshalJSON(raw); err != nil {
			return curve{}, &jsonlines.Error{Path: path, Line: record.Line, Err: fmt.Errorf("%s: %w", metric, err)}
		}
		if _, again := c.values[step]; !again {
			c.steps = append(c.steps, step)
		}
		c.values[step] = float64(value)
	}
	return c, nil
}

// average is the mean over runs at the steps that all of them have, ± the standard
// deviation. A mean over fewer would jump where a run ends or skips a record.
func average(runs []curve) []figure.Point {
	if len(runs) == 0 {
		return nil
	}
	var out []figure.Point
	for _, step := range runs[0].steps {
		var x []float64
		for _, r := range runs {
			if v, ok := r.values[step]; ok {
				x = append(x, v)
			}
		}
		if len(x) == len(runs) {
			d := study.Describe(x)
			out = append(out, figure.Point{X: float64(step), Y: d.Mean, Minus: zeroIfNaN(d.SD), Plus: zeroIfNaN(d.SD)})
		}
	}
	return out
}

// maxSteps bounds the points of one path, which are evenly thinned to it: beyond, no
// picture shows more, and the decomposition takes long.
const maxSteps = 512

// trail is where the parameters of one run went.
type trail struct {
	name   string
	color  int
	points [][]float64
}

// trajectories has the path of each cell, projected onto the two principal components
// of all points of all paths together.
func trajectories(s *study.Study, f study.Figure, results []study.Result) (picture, error) {
	g, err := group(s, results, nil, f.Where, f.Series, otherAxes(s, f.Series))
	if err != nil {
		return picture{}, err
	}
	var trails []trail
	for i, series := range g.labels[0] {
		named := false
		for _, label := range g.labels[1] {
			for _, r := range g.at(series, label) {
				if !r.result.Trained() {
					continue
				}
				points, err := readTrajectory(rundir.At(r.result.Cell.Run).Trajectory())
				if errors.Is(err, fs.ErrNotExist) {
					return picture{}, err // the runs of this study record none
				}
				if err != nil {
					return picture{}, &damageError{r.result.Cell.ID, err}
				}
				t := trail{color: i + 1, points: points}
				if !named {
					t.name, named = seriesName(f.Series, series), true
				}
				trails = append(trails, t)
			}
		}
	}
	if len(trails) == 0 {
		return picture{}, figure.ErrNoData
	}
	plane, err := project(trails)
	if err != nil {
		return picture{}, err
	}
	out := &figure.Chart{X: figure.Axis{Label: plane.label(0)}, Y: figure.Axis{Label: plane.label(1)}, Equal: true}
	for i, t := range trails {
		out.Series = append(out.Series, figure.Series{Name: t.name, Color: t.color, Line: figure.Varied, Ends: true, Points: plane.paths[i]})
	}
	return picture{out, []string{"A ring marks where a path begins, a disc where it ends."}}, nil
}

// plane is the projection of paths onto their first two principal components.
type plane struct {
	paths [][]figure.Point
	share [2]float64 // of the variance, for each component
}

func (p plane) label(i int) string {
	return fmt.Sprintf("component %d (%.0f %% of variance)", i+1, 100*p.share[i])
}

// project finds the first two principal components of all points. As the decomposition
// leaves their signs open, each gets the sign that makes its largest entry positive.
func project(trails []trail) (plane, error) {
	rows, width := 0, len(trails[0].points[0])
	for _, t := range trails {
		rows += len(t.points)
		if len(t.points[0]) != width {
			return plane{}, fmt.Errorf("trajectories of %d and %d parameters have no plane in common; restrict the figure with where", width, len(t.points[0]))
		}
	}
	all := mat.NewDense(rows, width, nil)
	center := make([]float64, width)
	row := 0
	for _, t := range trails {
		for _, x := range t.points {
			all.SetRow(row, x)
			for j, v := range x {
				center[j] += v / float64(rows)
			}
			row++
		}
	}
	var pc gonum.PC
	if !pc.PrincipalComponents(all, nil) {
		return plane{}, fmt.Errorf("the principal components of %d points of %d parameters could not be computed", rows, width)
	}
	return newPlane(trails, center, &pc), nil
}

func newPlane(trails []trail, center []float64, pc *gonum.PC) plane {
	var vectors mat.Dense
	pc.VectorsTo(&vectors)
	variances, total := pc.VarsTo(nil), 0.0
	for _, v := range variances {
		total += v
	}
	var out plane
	axes := [2][]float64{make([]float64, len(center)), make([]float64, len(center))}
	_, components := vectors.Dims()
	for i := range min(2, components) {
		mat.Col(axes[i], i, &vectors)
		orient(axes[i])
		if total > 0 {
			out.share[i] = variances[i] / total
		}
	}
	for _, t := range trails {
		var path []figure.Point
		for _, x := range t.points {
			var at [2]float64
			for j, v := range x {
				at[0] += (v - center[j]) * axes[0][j]
				at[1] += (v - center[j]) * axes[1][j]
			}
			path = append(path, figure.Point{X: at[0], Y: at[1]})
		}
		out.paths = append(out.paths, path)
	}
	return out
}

// orient turns a vector so that its largest entry is positive.
func orient(v []float64) {
	largest := 0.0
	for _, x := range v {
		if math.Abs(x) > math.Abs(largest)*(1+1e-9) {
			largest = x
		}
	}
	if largest < 0 {
		for i := range v {
			v[i] = -v[i]
		}
	}
}

// readTrajectory reads the points of a trajectory.jsonl up to the first that is not
// finite, thinned to maxSteps with both ends kept.
func readTrajectory(path vfs.Path) ([][]float64, error) {
	list, err := metrics.Read[metrics.Point](path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (trajectories are recorded by models of few parameters)", err)
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
			return nil, fmt.Errorf("%s: step %d has %d parameters, want as many as the first step, and at least one", path, p.Step, len(x))
		}
		points = append(points, x)
	}
	if len(points) == 0 {
		return nil, fmt.Errorf("%s: holds no point that is finite", path)
	}
	return thinPath(points), nil
}

func thinPath(points [][]float64) [][]float64 {
	if len(points) <= maxSteps {
		return points
	}
	out := make([][]float64, maxSteps)
	for i := range out {
		out[i] = points[i*(len(points)-1)/(maxSteps-1)]
	}
	return out
}

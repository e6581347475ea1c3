package main

import (
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// curve shows measures over the size of the fleet, on logarithmic axes.
type curve struct {
	file, title, unit string
	measures          []string
	// linear has the values on a linear axis, which begins at 0: for what should stay the same.
	linear bool
}

// write draws the curve if there is more than one size to show.
func (c curve) write(folder string, all results) error {
	if len(all.sizes(c.measures)) < 2 {
		return nil
	}
	p := plot.New()
	for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		f.Variant = "Sans"
	}
	p.Title.Text, p.Title.Padding = c.title, vg.Points(8)
	p.X.Label.Text, p.Y.Label.Text = "clusters", c.unit
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks(all.sizes(c.measures))
	if c.linear || !all.differ(c.measures) {
		p.Y.Min = 0
	} else {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: 3}
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, name := range c.measures {
		var points plotter.XYs
		for _, size := range all.sizes([]string{name}) {
			points = append(points, plotter.XY{X: float64(size), Y: all.byName[name][size].Median})
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, marks.Color = plotutil.Color(i), plotutil.Color(i)
		line.Width, marks.Shape = vg.Points(1.5), plotutil.Shape(i)
		p.Add(line, marks)
		if len(c.measures) > 1 {
			p.Legend.Add(name, line, marks)
		}
	}
	return p.Save(6*vg.Inch, 3.5*vg.Inch, filepath.Join(folder, c.file))
}

// ticks are at the sizes themselves.
func ticks(sizes []int) plot.ConstantTicks {
	var marks plot.ConstantTicks
	for _, size := range sizes {
		marks = append(marks, plot.Tick{Value: float64(size), Label: thousands(size)})
	}
	return marks
}

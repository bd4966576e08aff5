package main

import (
	"fmt"
	"image/color"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plotTarget is the target the plot is about.
const plotTarget = 1e-6

// colours per contestant, safe for the colour-blind (Okabe and Ito).
var colours = map[string]color.Color{
	"fbf":             color.RGBA{0, 114, 178, 255},
	"fbf batch":       color.RGBA{86, 180, 233, 255},
	"blobloom":        color.RGBA{230, 159, 0, 255},
	"bits-and-blooms": color.RGBA{213, 94, 0, 255},
	"apbf":            color.RGBA{0, 158, 115, 255},
	"paper's N-FBF":   color.RGBA{204, 121, 167, 255},
	"exact map":       color.RGBA{90, 90, 90, 255},
}

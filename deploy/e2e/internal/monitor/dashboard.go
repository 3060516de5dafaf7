package monitor

import (
	"encoding/json"
	"fmt"
	"os"
)

// Dashboard is the part of a Grafana dashboard that specs check.
type Dashboard struct {
	SchemaVersion int     `json:"schemaVersion"`
	UID           string  `json:"uid"`
	Panels        []Panel `json:"panels"`
	Annotations   struct {
		List []struct {
			Name       string     `json:"name"`
			Expr       Query      `json:"expr"`
			Datasource Datasource `json:"datasource"`
		} `json:"list"`
	} `json:"annotations"`
}

// Panel of a dashboard.
type Panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  Datasource `json:"datasource"`
	Targets     []Target   `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	GridPos struct{ H, W, X, Y int } `json:"gridPos"`
}

// Target is a query of a panel.
type Target struct {
	Expr         Query      `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	RefID        string     `json:"refId"`
	Datasource   Datasource `json:"datasource"`
}

// Datasource of a query.
type Datasource struct {
	UID string `json:"uid"`
}

// ReadDashboard reads a file.
func ReadDashboard(path string) (*Dashboard, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	d := &Dashboard{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("read the dashboard %s: %w", path, err)
	}
	return d, nil
}

// Shows returns the panels that show data, in their order.
func (d *Dashboard) Shows() []Panel {
	var shown []Panel
	for _, p := range d.Panels {
		if p.Type != "row" && p.Type != "text" {
			shown = append(shown, p)
		}
	}
	return shown
}

// Panel returns the first panel with that type and title.
func (d *Dashboard) Panel(kind, title string) (Panel, error) {
	for _, p := range d.Panels {
		if p.Title == title && p.Type == kind {
			return p, nil
		}
	}
	return Panel{}, fmt.Errorf("the dashboard has no %s %q", kind, title)
}

package console

import (
	"net/http"
	"net/url"
)

// actionRoutes adds the dialogs and actions.
func (s *Server) actionRoutes(mux *http.ServeMux) {
	for path, act := range map[string]func(*visit, bool) (*page, error){
		"/failures/replay": s.replay, "/failures/purge": s.purge, "/refetch": s.refetch,
		"/pause": s.pause, "/resume": s.resume,
	} {
		mux.HandleFunc("GET "+path, s.visited(func(v *visit) (*page, error) { return act(v, false) }))
		mux.HandleFunc("POST "+path, s.visited(func(v *visit) (*page, error) {
			if j := s.jobs.Find(v.FormValue("job")); j != nil { // a second click
				return &page{redirect: v.withNamespace("/jobs/" + j.ID)}, nil
			}
			return act(v, true)
		}))
	}
	mux.HandleFunc("GET /jobs/{id}", s.visited(s.jobPage))
	mux.HandleFunc("POST /jobs/{id}/stop", s.visited(s.stop))
}

func (s *Server) jobPage(v *visit) (*page, error) {
	j := s.jobs.Find(v.PathValue("id"))
	if j == nil || v.namespace != "" && j.Namespace != v.namespace {
		return nil, notFound("There is no such job any more. The audit has its record.")
	}
	view := j.View()
	return &page{template: "job.html", title: "Job " + view.Action, refresh: view.Running, data: map[string]any{
		"Job": view, "Mine": j.Person == v.person.Name,
	}}, nil
}

// stop stops a job of the person.
func (s *Server) stop(v *visit) (*page, error) {
	j := s.jobs.Find(v.PathValue("id"))
	if j == nil || j.Person != v.person.Name {
		return nil, notFound("%s has no such job.", v.person.Name)
	}
	j.Stop()
	return &page{redirect: v.withNamespace("/jobs/" + j.ID)}, nil
}

// withNamespace adds the only namespace that the person may see.
func (v *visit) withNamespace(path string) string {
	if v.namespace != "" {
		path += "?namespace=" + url.QueryEscape(v.namespace)
	}
	return path
}

package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// condition makes mutants of a condition: each of its parts is left out, and the whole is true or false. Root is false for
// a part.
func (w *walker) condition(e ast.Expr, root bool) {
	e = ast.Unparen(e)
	if b, ok := e.(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) {
		for _, part := range []ast.Expr{b.X, b.Y} {
			if inner, ok := ast.Unparen(part).(*ast.BinaryExpr); ok && inner.Op == b.Op {
				w.condition(part, false)
				continue
			}
			w.replace(part, map[token.Token]string{token.LAND: "true", token.LOR: "false"}[b.Op])
			w.condition(part, false)
		}
	}
	if !root {
		return
	}
	// That an error which did not happen is returned is noticed by any test; it would only raise the figure.
	if !w.isErrorCheck(e) {
		w.replace(e, "true")
	}
	w.replace(e, "false")
}

// loop makes the mutant of a loop that is never entered. One that never ends says nothing about the tests.
func (w *walker) loop(e ast.Expr) { w.replace(e, "false") }

// cases makes the mutants of a switch without a value.
func (w *walker) cases(s *ast.SwitchStmt) {
	for _, c := range s.Body.List {
		for _, e := range c.(*ast.CaseClause).List {
			w.condition(e, true)
		}
	}
}

// replace makes a mutant in which a boolean expression has the given value.
func (w *walker) replace(e ast.Expr, by string) {
	t := w.pkg.TypesInfo.Types[e]
	if t.Value != nil || !isPlainBool(t.Type) || short(w.text(e)) == by {
		return
	}
	w.alternative(e, by)
}

// alternative makes a mutant in which a boolean expression is another one.
func (w *walker) alternative(e ast.Expr, by string) {
	w.add(e, short(w.text(e))+" => "+short(by), "(mutantOn(%[1]d) && ("+escape(by)+") || !mutantOn(%[1]d) && (", "))")
}

func isPlainBool(t types.Type) bool {
	return types.Identical(t, types.Typ[types.Bool]) || types.Identical(t, types.Typ[types.UntypedBool])
}

// isErrorCheck says whether an expression compares an error with nil.
func (w *walker) isErrorCheck(e ast.Expr) bool {
	b, ok := ast.Unparen(e).(*ast.BinaryExpr)
	return ok && b.Op == token.NEQ && w.isError(b.X) && w.text(b.Y) == "nil"
}

func (w *walker) isError(e ast.Expr) bool {
	t := w.pkg.TypesInfo.TypeOf(e)
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}

var boundaries = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

var arithmetic = map[token.Token]string{token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*"}

// expression makes the mutants of comparisons and of arithmetic.
func (w *walker) expression(e ast.Expr) {
	b, ok := e.(*ast.BinaryExpr)
	if !ok {
		return
	}
	t := w.pkg.TypesInfo.Types[b]
	if t.Value != nil {
		return
	}
	x, y := w.text(b.X), w.text(b.Y)
	if by := boundaries[b.Op]; by != "" && isPlainBool(t.Type) {
		w.alternative(b, x+" "+by+" "+y)
	}
	if by := arithmetic[b.Op]; by != "" && isNumber(t.Type) {
		if name, ok := w.typeName(t.Type, b.Pos()); ok {
			what := short(w.text(b)) + " => " + short(x+" "+by+" "+y)
			w.add(b, what, "mutantEither(%d, func() "+escape(name)+" { return "+escape(x+" "+by+" "+y)+" }, func() "+escape(name)+" { return ", " })")
		}
	}
}

func isNumber(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0 && b.Info()&types.IsUntyped == 0
}

// statements makes the mutants of a list of statements: one is left out, an error is not returned, true is false.
func (w *walker) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ReturnStmt:
			w.results(s)
		case *ast.IfStmt:
			// The check whose mutant is "=> false" already swallows the error that its body returns.
			if w.isErrorCheck(s.Cond) && len(s.Body.List) == 1 {
				if r, ok := s.Body.List[0].(*ast.ReturnStmt); ok {
					w.swallowed[r] = true
				}
			}
		case *ast.AssignStmt:
			for _, e := range s.Rhs {
				if b, ok := e.(*ast.BinaryExpr); ok && isPlainBool(w.pkg.TypesInfo.TypeOf(b)) {
					w.condition(b, true)
				}
			}
			if s.Tok != token.DEFINE && !w.isBlank(s.Lhs) {
				w.leaveOut(s)
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
			w.leaveOut(s)
		case *ast.BranchStmt:
			if s.Tok == token.CONTINUE || s.Tok == token.BREAK {
				w.leaveOut(s)
			}
		case *ast.ExprStmt:
			if c, ok := s.X.(*ast.CallExpr); ok && !w.isPanic(c) && !w.saysSomething(c) {
				w.leaveOut(s)
			}
		case *ast.DeferStmt:
			if !w.onlyFrees(s.Call) {
				w.leaveOut(s)
			}
		}
	}
}

func (w *walker) leaveOut(s ast.Stmt) {
	w.add(s, "without "+short(w.text(s)), "if !mutantOn(%d) { ", " }")
}

func (w *walker) isBlank(left []ast.Expr) bool {
	for _, e := range left {
		if w.text(e) != "_" {
			return false
		}
	}
	return true
}

// results makes the mutants of what a function returns: an error as its last value is nil, true is false, false is true,
// and another comparison is both.
func (w *walker) results(r *ast.ReturnStmt) {
	// Beside an error nobody looks at the rest.
	failed := len(r.Results) > 1 && w.returnsError(r.Results[len(r.Results)-1]) && w.text(r.Results[len(r.Results)-1]) != "nil"
	for i, e := range r.Results {
		text := w.text(e)
		if text == "true" || text == "false" {
			if failed {
				continue
			}
			by := map[string]string{"true": "false", "false": "true"}[text]
			w.instead(r, i, by)
		} else if isPlainBool(w.pkg.TypesInfo.TypeOf(e)) {
			w.condition(e, true)
		}
		if i == len(r.Results)-1 && text != "nil" && w.returnsError(e) && !w.swallowed[r] {
			w.instead(r, i, "nil")
		}
	}
}

func (w *walker) returnsError(e ast.Expr) bool {
	t := w.pkg.TypesInfo.TypeOf(e)
	if t == nil {
		return false
	}
	if w.isError(e) {
		return true
	}
	// A type of ours that is an error, where a pointer to it is returned.
	_, pointer := t.Underlying().(*types.Pointer)
	return pointer && types.Implements(t, types.Universe.Lookup("error").Type().Underlying().(*types.Interface))
}

// instead makes a mutant in which the result with index i is another one.
func (w *walker) instead(r *ast.ReturnStmt, i int, by string) {
	results := make([]string, len(r.Results))
	for j, e := range r.Results {
		results[j] = w.text(e)
	}
	results[i] = by
	alternative := "return " + strings.Join(results, ", ")
	w.add(r, short(w.text(r))+" => "+short(alternative), "if mutantOn(%d) { "+escape(alternative)+" }; ", "")
}

// fields makes the mutants of a struct literal: each field that it sets has its zero value.
func (w *walker) fields(c *ast.CompositeLit) {
	t := w.pkg.TypesInfo.TypeOf(c)
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	s, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range c.Elts {
		field, value := (*types.Var)(nil), e
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			field, value = fieldNamed(s, w.text(kv.Key)), kv.Value
		} else {
			field = s.Field(i)
		}
		if field == nil || w.isZero(value) || w.isProse(value) {
			continue
		}
		name, ok := w.typeName(field.Type(), value.Pos())
		switch {
		case ok:
			name = "[" + name + "]"
		case types.Identical(field.Type(), w.pkg.TypesInfo.TypeOf(value)):
			name = ""
		default:
			continue
		}
		w.add(value, short(field.Name()+": "+w.text(value))+" => its zero value", "mutantZero"+escape(name)+"(%d, ", ")")
	}
}

func fieldNamed(s *types.Struct, name string) *types.Var {
	for f := range s.Fields() {
		if f.Name() == name {
			return f
		}
	}
	return nil
}

func (w *walker) isZero(e ast.Expr) bool {
	switch w.text(e) {
	case "nil", "false", "0", `""`:
		return true
	}
	return false
}

// isProse says whether an expression is a sentence for people.
func (w *walker) isProse(e ast.Expr) bool {
	v := w.pkg.TypesInfo.Types[e].Value
	if v != nil {
		return strings.Contains(v.String(), " ")
	}
	c, ok := e.(*ast.CallExpr)
	return ok && w.saysSomething(c)
}

// saysSomething says whether a call makes a message for people: an error's text or a line of a log.
func (w *walker) saysSomething(c *ast.CallExpr) bool {
	switch f := types.ExprString(c.Fun); f {
	case "fmt.Errorf", "errors.New", "fmt.Sprintf", "fmt.Fprintf", "fmt.Fprintln":
		return true
	}
	s, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	t := w.pkg.TypesInfo.TypeOf(s.X)
	return t != nil && t.String() == "*log/slog.Logger"
}

func (w *walker) isPanic(c *ast.CallExpr) bool { return types.ExprString(c.Fun) == "panic" }

// onlyFrees says whether a deferred call gives back what the process's end gives back as well.
func (w *walker) onlyFrees(c *ast.CallExpr) bool {
	f := types.ExprString(c.Fun)
	return strings.HasSuffix(f, ".Close") || strings.HasSuffix(f, ".Stop") || f == "cancel" || f == "stop"
}

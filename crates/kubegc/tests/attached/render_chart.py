"""Renders a Helm chart as `helm template` does, by Helm's own code, and lints it.

usage: render.py CHART [EXPRESSION...]    expressions as those of `--set`
"""
import sys

import helm_python

chart_path, expressions = sys.argv[1], sys.argv[2:]
values = helm_python.parse_set_string(",".join(expressions)) if expressions else {}
report = helm_python.lint(chart_path, values, strict=True, namespace="kube-system")
if report["errors"]:
    sys.exit("\n".join(report["errors"]))
with helm_python.Chart.load(chart_path) as chart:
    chart.validate_schema(values)
    manifests = chart.render(values, name="kubegc", namespace="kube-system", is_install=True)
print("\n---\n".join(manifests[path] for path in sorted(manifests) if path.endswith(".yaml")))

"""Dashboards of Grafana, built with Grafana's own types from the forms in `dashboards/`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tools.deploy.form import DashboardForm, Panel, Query, Row, Variable, spelled_out
from tools.deploy.notation import Notation
from tools.deploy.units import axis_label, grafana_unit
from tools.model import Metric, short

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
EXPORT_EVERY = "1m"
"""The longest time between two exports. `$__rate_interval` is then four of them, so that every window has points."""
ALL = ".*"
"""Also a run without the label, such as one that names no project."""
RUN = {"project": "`project`", "run": "`run.id`", "attempt": "`run.attempt`"}
"""The variables that a link from a table hands over, and the column that has the value."""
Builder = timeseries.Panel | stat.Panel | table.Panel | heatmap.Panel


def write(form: DashboardForm, notation: Notation) -> str:
    """The JSON that Grafana imports, the same at every writing."""
    return json.dumps(_Builder(form, notation).build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


@dataclass(frozen=True)
class _Builder:
    form: DashboardForm
    notation: Notation

    def build(self) -> model.Dashboard:
        board = (
            dashboard.Dashboard(self.form.title)
            .uid(self.form.uid)
            .description(self.form.description)
            .tags(["akka", "training"])
            .time("now-6h", "now")
            .refresh("30s")
            .timezone("browser")
            .tooltip(model.DashboardCursorSync.CROSSHAIR)
            .links([self._link(uid, title) for uid, title in self.form.leads_to.items()])
            .variables([dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")])
        )
        for variable in self.form.variables:
            board.with_variable(self._variable(variable))
        for row in self.form.rows:
            self._add(board, row)
        built = board.build()
        for number, panel in enumerate(built.panels or [], start=1):
            panel.id_val = number
        return built

    def _add(self, board: dashboard.Dashboard, row: Row) -> None:
        board.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            board.with_panel(_PanelBuilder(self.form, panel, self.notation).build())

    def _variable(self, variable: Variable) -> dashboard.QueryVariable:
        of = self.notation.promql(spelled_out(variable.of, self.form.abbreviations))
        built = (
            dashboard.QueryVariable(variable.name)
            .label(variable.name.capitalize())
            .datasource(SOURCE)
            .query(f"label_values({of}, {self.notation.label(variable.attribute)})")
            .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(model.VariableSort.NATURAL_DESC)
        )
        if not variable.several:
            return built
        everything = model.VariableOption(text="All", value="$__all", selected=True)
        return built.multi(True).include_all(True).all_value(ALL).current(everything)

    @staticmethod
    def _link(uid: str, title: str) -> dashboard.DashboardLink:
        return (
            dashboard.DashboardLink(title)
            .type(model.DashboardLinkType.LINK)
            .url(f"/d/{uid}")
            .include_vars(True)
            .keep_time(True)
        )


@dataclass(frozen=True)
class _PanelBuilder:
    form: DashboardForm
    panel: Panel
    notation: Notation

    def build(self) -> Builder:
        kinds: dict[str, Callable[[], Builder]] = {
            "lines": self._lines,
            "stacked": self._stacked,
            "stat": self._stat,
            "table": self._table,
            "heatmap": self._heatmap,
        }
        built = kinds[self.panel.kind]()
        built.title(self.panel.title).description(self._description()).datasource(SOURCE)
        built.unit(self._unit()).no_value(self.panel.absent)
        built.span(self.panel.width).height(self.panel.height)
        for letter, query in zip("ABCDEFGHIJKL", self.panel.queries, strict=False):
            built.with_target(self._target(letter, query))
        return built

    # Kinds of panel

    def _lines(self) -> timeseries.Panel:
        legend = common.VizLegendOptions().display_mode(options.LegendDisplayMode.LIST)
        tooltip = common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI)
        return (
            timeseries.Panel()
            .legend(legend.placement(options.LegendPlacement.BOTTOM).show_legend(True))
            .tooltip(tooltip.sort(options.SortOrder.DESCENDING))
            .axis_label(axis_label(self._metric) if self._metric and not self.panel.unit else "")
            .show_points(options.VisibilityMode.AUTO)
            .span_nulls(False)
        )

    def _stacked(self) -> timeseries.Panel:
        stacking = common.StackingConfig().mode(options.StackingMode.NORMAL).group("A")
        return self._lines().stacking(stacking).fill_opacity(40).line_width(0)

    def _stat(self) -> stat.Panel:
        return stat.Panel().reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))

    def _heatmap(self) -> heatmap.Panel:
        return heatmap.Panel().calculate(False).y_axis(heatmap.YAxisConfig().unit(self._unit()))

    def _table(self) -> table.Panel:
        titles = {self.notation.column(name): title for name, title in self.panel.columns.items()}
        values = {f"Value #{letter}": query for letter, query in zip("ABCDEFGHIJKL", self.panel.queries, strict=False)}
        order = [*titles, *values]
        shown = {**titles, **{name: query.title for name, query in values.items()}}
        organize = {
            "indexByName": {name: position for position, name in enumerate(order)},
            "renameByName": shown,
            "includeByName": dict.fromkeys(order, True),
        }
        built = (
            table.Panel()
            .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
            .with_transformation(model.DataTransformerConfig(id_val="organize", options=organize))
        )
        for query in self.panel.queries:
            built.override_by_name(query.title, [model.DynamicConfigValue("unit", self._unit_of(query))])
        for title, uid in self.panel.links.items():
            built.override_by_name(title, [model.DynamicConfigValue("links", [self._link(title, uid)])])
        return built

    # What stands in it

    def _target(self, letter: str, query: Query) -> prometheus.Dataquery:
        target = prometheus.Dataquery().ref_id(letter).datasource(SOURCE).expr(self._promql(query))
        if self.panel.kind == "table":
            return target.instant().format(PromQueryFormat.TABLE)
        if self.panel.kind == "stat":
            return target.instant().legend_format(self._legend(query))
        if self.panel.kind == "heatmap":
            return target.range().format(PromQueryFormat.HEATMAP).legend_format("{{le}}").interval(EXPORT_EVERY)
        target.range().legend_format(self._legend(query))
        return target.interval(EXPORT_EVERY) if "$__rate_interval" in query.expr else target

    def _promql(self, query: Query) -> str:
        return self.notation.promql(spelled_out(query.expr, self.form.abbreviations))

    def _legend(self, query: Query) -> str:
        """The given one, or the metric's name and attributes as the registry has them."""
        if query.title:
            return self.notation.legend(spelled_out(query.title, self.form.abbreviations))
        metric = self._metrics_of(query)[0]
        labels = [f"{{{{{self.notation.label(use.ref)}}}}}" for use in metric.attributes]
        words = [_words(metric)] if len(self.panel.queries) > 1 or not labels else []
        attempt = f"· attempt {{{{{self.notation.label('run.attempt')}}}}}"
        return " ".join([*words, *labels, *([attempt] if "attempt" in self._variables else [])])

    def _description(self) -> str:
        if self.panel.description:
            return self.panel.description
        metrics = {metric.name: metric for query in self.panel.queries for metric in self._metrics_of(query)}
        if len(metrics) == 1:
            [metric] = metrics.values()
            return " ".join(filter(None, [metric.brief, metric.note]))
        return "\n".join(f"* `{short(metric.name)}`: {metric.brief}" for metric in metrics.values())

    def _link(self, title: str, uid: str) -> dict[str, object]:
        columns = {name: self.panel.columns[column] for name, column in RUN.items() if column in self.panel.columns}
        chosen = [f'var-{name}=${{__data.fields["{column}"]}}' for name, column in columns.items()]
        return {"title": f"Show this {title.lower()}", "url": f"/d/{uid}?{'&'.join(chosen)}&${{__url_time_range}}"}

    def _unit(self) -> str:
        return self.panel.unit or (grafana_unit(self._metric) if self._metric else "short")

    def _unit_of(self, query: Query) -> str:
        metrics = self._metrics_of(query)
        return query.unit or (grafana_unit(metrics[0]) if metrics else "short")

    @cached_property
    def _metric(self) -> Metric | None:
        """The metric that gives the panel its unit."""
        if self.panel.metric:
            return self.notation.metric(self.panel.metric)
        return next(iter(self._metrics_of(self.panel.queries[0])), None)

    def _metrics_of(self, query: Query) -> Sequence[Metric]:
        return self.notation.metrics(spelled_out(query.expr, self.form.abbreviations))

    @property
    def _variables(self) -> set[str]:
        return {variable.name for variable in self.form.variables}


def _words(metric: Metric) -> str:
    """The metric's name without the part that all figures of a loop's step share."""
    return short(metric.name).removeprefix("rl.").removeprefix("sft.").removeprefix("step.").replace(".", " ")

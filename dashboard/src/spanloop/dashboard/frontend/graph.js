// Agents and tools with the calls between them. Nodes and counts are links, and lie above a drawing of the lines.
const NODE = { width: 176, height: 50, gapX: 132, gapY: 26 };
const SVG = "http://www.w3.org/2000/svg";
export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".graph-host");
  const left = (node) => node.column * (NODE.width + NODE.gapX);
  const top = (node) => 14 + node.row * (NODE.height + NODE.gapY);
  const nodes = new Map(data.nodes.map((node) => [node.key, node]));
  const width = Math.max(...data.nodes.map((node) => left(node) + NODE.width));
  const height = Math.max(...data.nodes.map((node) => top(node) + NODE.height)) + 34;
  const most = Math.max(...data.edges.map((edge) => edge.calls), 1);
  const drawing = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ width, height, "aria-hidden": "true" })) drawing.setAttribute(name, value);
  const labels = data.edges.map((edge) => {
    const [source, target] = [nodes.get(edge.source), nodes.get(edge.target)];
    const isForward = target.column > source.column;
    const x1 = left(source) + (isForward ? NODE.width : NODE.width / 2);
    const y1 = top(source) + (isForward ? NODE.height / 2 : NODE.height);
    const x2 = isForward ? left(target) : left(target) + NODE.width / 2 + (source === target ? 40 : 0);
    const y2 = isForward ? top(target) + NODE.height / 2 : top(target) + NODE.height;
    const bend = isForward ? Math.max(36, (x2 - x1) / 2) : 0;
    const drop = isForward ? 0 : 34;
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", `M${x1},${y1} C${x1 + bend},${y1 + drop} ${x2 - bend},${y2 + drop} ${x2},${y2}`);
    path.setAttribute("class", `${edge.failures ? "failing" : ""} ${edge.isCurrent ? "current" : ""}`);
    path.setAttribute("stroke-width", 1.2 + 3.5 * (edge.calls / most));
    const end = document.createElementNS(SVG, "path");
    end.setAttribute("d", isForward ? `M${x2 - 8},${y2 - 4.5} L${x2},${y2} L${x2 - 8},${y2 + 4.5}` : `M${x2 - 4.5},${y2 + 8} L${x2},${y2} L${x2 + 4.5},${y2 + 8}`);
    end.setAttribute("class", `end ${edge.failures ? "failing" : ""}`);
    drawing.append(path, end);
    // A label lies near its target, where lines of one source have parted.
    const x = isForward ? x2 - NODE.gapX / 2 + 14 : (x1 + x2) / 2;
    const y = isForward ? y1 + (y2 - y1) * (x2 - x1 > NODE.gapX + 1 ? 0.93 : 0.68) : Math.max(y1, y2) + 26;
    return link(edge.href, {
      class: `edge ${edge.failures ? "failing" : ""} ${edge.isCurrent ? "current" : ""}`,
      style: `left:${x}px;top:${y}px`,
      title: edge.title, "aria-current": edge.isCurrent ? "true" : undefined,
    }, make("span", { class: "unseen", text: `${source.name} called ${target.name} ` }), edge.text);
  });
  const boxes = data.nodes.map((node) => link(node.href, {
    class: `node ${node.kind} ${node.failures ? "failing" : ""} ${node.isCurrent ? "current" : ""}`,
    style: `left:${left(node)}px;top:${top(node)}px;width:${NODE.width}px;height:${NODE.height}px`,
    title: node.title, "aria-current": node.isCurrent ? "true" : undefined,
  }, make("span", { class: "unseen", text: `${node.kind} ` }), make("strong", { text: node.name || "(no name)" }), make("span", { text: node.text })));
  host.replaceChildren(make("div", { class: "frame", role: "group", "aria-label": "Agents and tools", tabindex: 0 },
    make("div", { class: "sheet", style: `width:${width}px;height:${height}px` }, drawing, ...boxes, ...labels)));
}

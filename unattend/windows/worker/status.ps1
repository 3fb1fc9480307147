# What this worker has so far. Changes nothing and needs no settings.
. (Join-Path $PSScriptRoot 'common.ps1')

Invoke-Step {
    $version = Get-ItemProperty -Path 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'
    $booted = (Get-CimInstance -ClassName Win32_OperatingSystem).LastBootUpTime.ToUniversalTime()
    # Windows computes the time of its start from the clock, which a time server may correct; this number only counts
    # starts
    $counter = 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters'
    $time = $booted.ToString('yyyy-MM-ddTHH:mm:ssZ', [Globalization.CultureInfo]::InvariantCulture)
    $boot = $time
    if (Test-Path -Path $counter) { $boot = "$((Get-ItemProperty -Path $counter).BootId)" }
    $binaries = @{}
    $pushed = @()
    foreach ($folder in $ProgramFolder, $ContainerdFolder, $PluginFolder) {
        if (-not (Test-Path -LiteralPath $folder)) { continue }
        foreach ($file in Get-ChildItem -LiteralPath $folder -File) {
            if ($file.Name -like '*.winlab-original') { $pushed += $file.Name -replace '\.winlab-original$', '' }
            if ($folder -eq $ProgramFolder -and $file.Extension -eq '.exe') {
                $binaries[$file.Name] = Get-Sha256 $file.FullName
            }
        }
    }
    $networks = @{}
    if (Test-Path -LiteralPath $NetworkFolder) {
        foreach ($file in Get-ChildItem -LiteralPath $NetworkFolder -File) {
            $networks[$file.Name] = Get-Sha256 $file.FullName
        }
    }
    $given = Get-Given
    $files = @{}
    foreach ($path in @($given.files | Where-Object { $_ })) { $files[$path] = Get-Sha256 $path }
    $registry = @{}
    foreach ($row in @($given.registry | Where-Object { $_ })) {
        $registry["$($row.key)\$($row.name)"] = Get-RegistryText $row.key $row.name
    }
    $variables = Get-ContainerdEnvironment # which may hold a password
    # Windows has no such command before the feature Containers is installed
    $endpoints = @()
    if (Get-Command -Name 'Get-HnsEndpoint' -ErrorAction SilentlyContinue) {
        $endpoints = @(Get-HnsEndpoint | ForEach-Object { "$($_.Name)" })
    }
    return @{
        boot_time = $time
        boot_id = $boot
        build = "$($version.CurrentBuild).$($version.UBR)"
        containers_feature = Get-FeatureState 'Containers'
        features_set = "$(Get-Text $FeaturesSet)"
        restart_pending = Test-RestartPending
        containerd = @{
            service = Get-ServiceState 'containerd'
            sha256 = Get-Sha256 "$ContainerdFolder\containerd.exe"
            config_sha256 = Get-Sha256 "$ContainerdFolder\config.toml"
            environment_sha256 = $(if ($variables) { Get-TextSha256 $variables } else { '' })
        }
        images_from = $(if (Test-Path -LiteralPath $Importing) { '' } else { "$(Get-Text $ImagesFrom)" })
        binaries = $binaries
        installed_from = "$(Get-Text $InstalledFrom)"
        cd = Get-Sha256 (Join-Path $Payload 'payload.json')
        pushed = $pushed
        kubelet = @{
            service = Get-ServiceState 'kubelet'
            command = Get-ServiceCommand 'kubelet'
            joined = Test-Joined
        }
        cni = $networks
        files = $files
        registry = $registry
        endpoints = $endpoints
        proxy = @{
            service = Get-ServiceState 'kube-proxy'
            command = Get-ServiceCommand 'kube-proxy'
            stale = Test-ProxyStale
        }
    }
}
